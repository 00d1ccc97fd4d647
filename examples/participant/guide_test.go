package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in the guide is that of this example.
func TestGuideShowsThisCode(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "participants.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(plain(b))
	}
	blocks := regexp.MustCompile("(?s)```go\r?\n(.*?)```").FindAllSubmatch(guide, -1)
	if len(blocks) == 0 {
		t.Fatal("the guide shows no code")
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), plain(b[1])) {
			t.Errorf("this example has no such code:\n%s", b[1])
		}
	}
}

// plain is code without its indentation.
func plain(code []byte) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(strings.ReplaceAll(string(code), "\r\n", "\n"), "")
}
