package cmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzServeConfiguration sets a flag through the environment to anything: it is taken, or refused as an error of
// the caller that names the flag or its variable.
func FuzzServeConfiguration(f *testing.F) {
	var flags []*pflag.Flag
	newServeCommand().Flags().VisitAll(func(flag *pflag.Flag) { flags = append(flags, flag) })
	for i, flag := range flags {
		f.Add(i, flag.DefValue)
		f.Add(i, "-1")
		f.Add(i, "9999999999999999999999")
	}
	for i, value := range []string{"unix:///s", "tcp://0.0.0.0:1", "tcp://[::1", "unix://", "tcp://:0,unix:///a", `"`, "tcp://localhost:x"} {
		f.Add(i, value)
		f.Add(listenFlag(flags), value)
	}
	f.Fuzz(func(t *testing.T, which int, value string) {
		flag := flags[int(uint(which)%uint(len(flags)))]
		if strings.HasSuffix(flag.Name, "-file") || strings.HasPrefix(flag.Name, "tls-") {
			return // names of files, which are not read here
		}
		s, command := newServeFlags()
		name := "FLINKNDB_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		err := flagsFromEnvironment(command.Flags(), func(asked string) (string, bool) { return value, asked == name })
		if err == nil {
			err = s.validate()
		}
		if err == nil {
			_, err = s.endpoints()
		}
		if err == nil {
			_, err = s.logger(new(strings.Builder))
		}
		var usage *usageError
		if err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), flag.Name) && !strings.Contains(err.Error(), name)) {
			t.Fatalf("%s=%q: %v", name, value, err)
		}
		if err == nil && s.memoryBound() <= 0 {
			t.Fatalf("%s=%q: memory is bounded by %d", name, value, s.memoryBound())
		}
	})
}

func listenFlag(flags []*pflag.Flag) int {
	for i, flag := range flags {
		if flag.Name == "listen" {
			return i
		}
	}
	return -1
}
