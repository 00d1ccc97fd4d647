package main

import (
	"strings"
	"testing"
)

func TestPasswordsAreNeverPrinted(t *testing.T) {
	const password = "s3cr3t"
	for _, line := range []string{
		"list -store postgres://ann:s3cr3t@127.0.0.1:1/shop",
		"list -store postgres://ann@127.0.0.1:1/shop?password=s3cr3t",
		"list -store postgres://ann:s3cr3t@127.0.0.1:99999/shop",
		"list -store postgres://ann:s3cr3t@[::1/shop",
		"list -store postgres://ann:s3cr3t%zz@127.0.0.1:1/shop",
		"list -store postgres://ann:s3cr3t@127.0.0.1:1/shop?sslmode=nonsense",
		"list -store mysql://ann:s3cr3t@127.0.0.1:1/shop",
		"list -store sqlite:/nowhere/postgres://ann:s3cr3t@h/x",
		"list -stroe=postgres://ann:s3cr3t@127.0.0.1:1/shop",
		"postgres://ann:s3cr3t@127.0.0.1:1/shop",
		"show postgres://ann:s3cr3t@127.0.0.1:1/shop",
		"list -limit postgres://ann:s3cr3t@127.0.0.1:1/shop",
		"dead list -amqp amqp://ann:s3cr3t@127.0.0.1:1/",
		"dead list -amqp amqp://ann:s3cr3t@[::1/",
		"dead list -amqp http://ann:s3cr3t@127.0.0.1/",
		"topology -check -amqp amqp://ann:s3cr3t@127.0.0.1:1/",
		"list",
	} {
		k := newTool(t)
		if line == "list" {
			k.env["LEVERET_STORE"] = "postgres://ann:s3cr3t@127.0.0.1:1/shop"
		}
		r := k.run(line)
		if r.code == exitOK || r.stderr == "" {
			t.Errorf("%s: exit code %d, stderr %q", line, r.code, r.stderr)
		}
		if strings.Contains(r.stdout+r.stderr, password) {
			t.Errorf("%s: %s%s", line, r.stdout, r.stderr)
		}
	}
}

func TestRedact(t *testing.T) {
	for _, row := range []struct{ text, address, want string }{
		{"dial postgres://a:b@h/d: refused", "", "dial postgres://a:***@h/d: refused"},
		{"amqp://a:p@ss@h/", "", "amqp://a:***@h/"},
		{"host=h password=geheim user=x", "", "host=h password=*** user=x"},
		{"password='a b' user=x", "", "password=*** user=x"},
		{"login p@ss failed", "amqp://a:p%40ss@h/", "login *** failed"},
		{"nothing to see", "postgres://a@h/d", "nothing to see"},
	} {
		if got := redact(row.text, row.address); got != row.want {
			t.Errorf("%q is %q, want %q", row.text, got, row.want)
		}
	}
}
