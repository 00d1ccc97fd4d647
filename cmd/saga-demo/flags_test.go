package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-once", "-n", "7", "-store", "sqlite:x.db", "-amqp", "amqp://u:p@h/v", "-workers", "3", "-fail", "0.5",
		"-seed", "9", "-role", "work", "-json", "-drain", "-lease", "3s", "-prefix", "a.b", "-run", "r1", "-v"})
	want := options{n: 7, store: "sqlite:x.db", amqp: "amqp://u:p@h/v", workers: 3, fail: 0.5, seed: 9, role: "work", json: true,
		drain: true, lease: 3 * time.Second, prefix: "a.b", run: "r1", verbose: true}
	if err != nil || o != want {
		t.Errorf("options %+v, %v\nwant %+v", o, err, want)
	}
	o, err = parse(nil)
	want = options{n: 200, workers: 10, fail: 0.05, role: "all", lease: 10 * time.Second}
	if err != nil || o != want {
		t.Errorf("defaults %+v, %v\nwant %+v", o, err, want)
	}
}

func TestWrongFlagsAreOneLine(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"-n x", "-n"},
		{"-n 0", "-n is 0"},
		{"-n -3", "-n is -3"},
		{"-n 9999999999999999999999", "-n"},
		{"-workers 0", "-workers is 0"},
		{"-fail 1.5", "-fail is 1.5"},
		{"-fail NaN", "-fail is NaN"},
		{"-fail -0.1", "-fail is -0.1"},
		{"-lease 1ms", "-lease is 1ms"},
		{"-lease soon", "-lease"},
		{"-role boss", "-role is \"boss\""},
		{"-role work", "needs a -store"},
		{"-role start -store memory", "needs a -store"},
		{"-store mysql://x", "-store is none"},
		{"-store sqlite:", "-store is none"},
		{"-store sqlite::memory:", "-store is none"},
		{"-store postgres://%zz", "-store is none"},
		{"-amqp localhost", "-amqp is not a URL"},
		{"-amqp http://u:secret@h", "-amqp is not a URL"},
		{"-prefix a/b", "-prefix is"},
		{"-run A", "-run is"},
		{"-drain", "-drain is for"},
		{"-seed -1", "-seed"},
		{"-what", "-what"},
		{"now", "unexpected argument"},
	} {
		_, err := parse(strings.Fields(row.args))
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("parse(%s): %v, want one line with %q", row.args, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("parse(%s) shows the password: %v", row.args, err)
		}
		var stdout, stderr strings.Builder
		if code := run(t.Context(), strings.Fields(row.args), &stdout, &stderr); code != exitUsage || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("run(%s): code %d, stdout %q, stderr %q; want 2 and one line", row.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestHelpHasALineForEachFlag(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Errorf("code %d, stderr %q", code, stderr.String())
	}
	lines := strings.Split(stdout.String(), "\n")
	for _, name := range strings.Fields("once n store amqp prefix workers fail seed role run lease drain json v") {
		found := 0
		for _, l := range lines {
			if f := strings.Fields(l); len(f) > 2 && f[0] == "-"+name {
				found++
			}
		}
		if found != 1 {
			t.Errorf("-%s has %d lines in the help:\n%s", name, found, stdout.String())
		}
	}
}

func FuzzFlags(f *testing.F) {
	for _, args := range []string{
		"", "-h", "-n 5", "-n=5 -json", "-fail 0x1p-2", "-role work -store sqlite:a -drain", "-store postgres://u:p@h/d?x=y",
		"-amqp amqps://h:5671/", "-lease 1h", "-- -n", "-n\n5", "-\u2028", "-seed 18446744073709551615",
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parse(strings.Split(line, " "))
		var help errHelp
		switch {
		case errors.As(err, &help):
		case err != nil:
			if strings.ContainsAny(err.Error(), "\n\r\u2028") || err.Error() == "" {
				t.Errorf("error %q is not one line", err)
			}
		case o.n < 1 || o.workers < 1 || !(o.fail >= 0 && o.fail <= 1) || o.lease < time.Second || o.check() != nil:
			t.Errorf("options %+v", o)
		}
	})
}
