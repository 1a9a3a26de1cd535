package ndb

import (
	"strings"
	"testing"
)

// FuzzURL parses anything: a configuration that makes sense, or an error that does not show a password.
func FuzzURL(f *testing.F) {
	for _, url := range []string{
		"mysql://app@db1,db2:3307,[::1]:3308,%2Frun%2Fmysql.sock/flink_1?engine=ndb&durability=disk&pool=5&retry-timeout=10s",
		"mysql://a:pass-word-1@b/c", "mysql://a@b/c?tls=on&tls-ca=x", "mysql://@/", "mysql://a@[/c", "mysql://a@%zz/c", "mysql://a@b/c?%zz", "mysql:", "",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "file") || strings.Contains(url, "%") && strings.Contains(url, "?") {
			return // names of files, which would be read
		}
		cfg, err := parseURL(url)
		if err != nil {
			if !strings.Contains(err.Error(), "store URL") {
				t.Fatalf("%q: %v", url, err)
			}
			if strings.Contains(err.Error(), "pass-word-1") {
				t.Fatalf("%q: the error shows the password", url)
			}
			return
		}
		if len(cfg.addresses) == 0 || cfg.user == "" || cfg.database == "" || cfg.pool < 1 {
			t.Fatalf("%q became %+v", url, cfg)
		}
	})
}
