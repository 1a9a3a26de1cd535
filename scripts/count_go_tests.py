"""Counts the top-level tests in the output of `go test -json`; with --failures prints what failed."""

import json
import sys


def events(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("{"):
                yield json.loads(line)


def main():
    show = sys.argv[1] == "--failures"
    results, output = {}, {}
    for event in events(sys.argv[-1]):
        test = event.get("Test", "")
        key = (event.get("Package", ""), test.split("/")[0])
        if event["Action"] == "output":
            output.setdefault(key, []).append(event["Output"])
        elif event["Action"] in ("pass", "fail", "skip") and "/" not in test:
            results[key] = event["Action"]
    if show:
        for key, result in results.items():
            if result == "fail":
                print("FAILED", *key)
                print("".join(output.get(key, []))[-6000:])
        return
    tests = [result for (_, test), result in results.items() if test]
    packages = [result for (_, test), result in results.items() if not test and result == "fail"]
    failed = tests.count("fail") or len(packages)
    print(tests.count("pass"), failed, tests.count("skip"))


main()
