// Package leveret_test keeps the documents true: their code, their links, and
// their tables of settings.
package leveret_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the structs of which the README has a table, and where they are
// declared. A table stands below a heading of the same name.
var documented = map[string]string{
	"saga.Config":           "saga",
	"saga.Definition":       "saga",
	"saga.StartOptions":     "saga",
	"saga.Step":             "saga",
	"saga.RetryPolicy":      "saga",
	"amqp.Config":           "amqp",
	"amqp.ConsumerConfig":   "amqp",
	"inproc.Config":         "inproc",
	"inproc.ConsumerConfig": "inproc",
	"postgres.Config":       "store/postgres",
	"sqlite.Config":         "store/sqlite",
}

func TestTablesNameEveryField(t *testing.T) {
	sections := tables(read(t, "README.md"))
	for name, dir := range documented {
		_, typ, _ := strings.Cut(name, ".")
		want := fields(t, dir, typ)
		if got := sections[name]; !slices.Equal(got, want) {
			t.Errorf("README.md, ### %s:\n got %q\nwant %q, in the order of the source", name, got, want)
		}
	}
	for name := range sections {
		if _, ok := documented[name]; !ok {
			t.Errorf("README.md, ### %s: not checked; add it to this test", name)
		}
	}
}

// Go code of the README and the guides is part of a program or of an example;
// blocks marked "output" are what one of these prints.
func TestCodeIsCompiled(t *testing.T) {
	var sources, outputs []string
	comment := regexp.MustCompile(`(?m)^\s*// ?`)
	walk(t, ".go", func(file, text string) {
		if ok, _ := path.Match("example*_test.go", path.Base(file)); ok || strings.HasPrefix(file, "examples/") {
			sources = append(sources, unindent(text))
			outputs = append(outputs, unindent(text), comment.ReplaceAllString(text, ""))
		}
	})
	block := regexp.MustCompile("(?s)```(go|output)\n(.*?)```")
	compiled := func(file, text string) {
		blocks := block.FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no Go code", file)
		}
		for _, b := range blocks {
			in, code := sources, unindent(b[2])
			if b[1] == "output" {
				in = outputs
			}
			if !slices.ContainsFunc(in, func(s string) bool { return strings.Contains(s, code) }) {
				t.Errorf("%s: this %s stands in no examples/… and no example…_test.go, word for word:\n%s", file, b[1], b[2])
			}
		}
	}
	compiled("README.md", read(t, "README.md"))
	walk(t, ".md", func(file, text string) {
		if strings.HasPrefix(file, "docs/guides/") && strings.Contains(text, "```go") {
			compiled(file, text)
		}
	})
}

// The index for coding assistants has every page.
func TestLLMsIndexIsWhole(t *testing.T) {
	index := read(t, "docs/llms.txt")
	walk(t, ".md", func(file, _ string) {
		if page, ok := strings.CutPrefix(file, "docs/"); ok && !strings.Contains(index, "("+page+")") {
			t.Errorf("docs/llms.txt lacks %s", page)
		}
	})
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(index, -1) {
		if _, err := os.Stat(path.Join("docs", link[1])); err != nil {
			t.Errorf("docs/llms.txt: %v", err)
		}
	}
}

func TestLinksExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	walk(t, ".md", func(file, text string) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			u, err := url.Parse(m[1] + m[2])
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			target := file
			if u.Path != "" {
				target = path.Join(path.Dir(file), u.Path)
				if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
					t.Errorf("%s: %s: there is no such file", file, u)
					continue
				}
			}
			if u.Fragment != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(read(t, target)), u.Fragment) {
				t.Errorf("%s: %s: there is no such heading", file, u)
			}
		}
	})
}

// tables returns, by heading, the fields in the first column of the table below
// it. Only headings like "pkg.Type" count.
func tables(text string) map[string][]string {
	heading := regexp.MustCompile(`^### ([a-z]+\.[A-Z]\w+)$`)
	row := regexp.MustCompile("^\\| `([A-Z]\\w*)` \\|")
	all := map[string][]string{}
	now := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			now = ""
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			now = m[1]
			all[now] = nil
		} else if m := row.FindStringSubmatch(line); m != nil && now != "" {
			all[now] = append(all[now], m[1])
		}
	}
	return all
}

// fields returns the exported fields of a struct, as the source has them.
func fields(t *testing.T, dir, typ string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				t.Fatalf("%s.%s is no struct", dir, typ)
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					if name.IsExported() {
						names = append(names, name.Name)
					}
				}
			}
			return false
		})
	}
	if len(names) == 0 {
		t.Fatalf("%s has no struct %s with exported fields", dir, typ)
	}
	return names
}

// anchors returns the fragments by which the headings of a document are linked.
func anchors(text string) (all []string) {
	for line := range strings.Lines(withoutCode(text)) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(title))))
	}
	return all
}

func withoutCode(text string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
}

func unindent(text string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "")
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// walk calls f for the files of the repository with an ending, with slashes in
// their paths.
func walk(t *testing.T, ending string, f func(file, text string)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(file, ending):
			n++
			f(filepath.ToSlash(file), read(t, filepath.ToSlash(file)))
		}
		return nil
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("there is no file *%s", ending)
	}
	if err != nil {
		t.Fatal(err)
	}
}
