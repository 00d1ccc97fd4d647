package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func readDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "sagactl.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// leaves lists the commands that do something, by their names.
func leaves(prefix string, all []*cli.Command) map[string]*cli.Command {
	out := map[string]*cli.Command{}
	for _, c := range all {
		name := strings.TrimSpace(prefix + " " + c.Name)
		if len(c.Commands) == 0 {
			out[name] = c
		}
		for n, sub := range leaves(name, c.Commands) {
			out[n] = sub
		}
	}
	return out
}

func TestTheDocumentationHasAllCommandsAndFlags(t *testing.T) {
	text := readDocs(t)
	root := (&terminal{}).root(io.Discard)
	commands := leaves("", root.Commands)
	var inDocs []string
	for _, m := range regexp.MustCompile("(?m)^### `sagactl ([a-z -]+)`$").FindAllStringSubmatch(text, -1) {
		inDocs = append(inDocs, m[1])
		if commands[m[1]] == nil {
			t.Errorf("docs/sagactl.md has %q, which is no command", m[1])
		}
	}
	flags := root.Flags
	for name, c := range commands {
		if !slices.Contains(inDocs, name) {
			t.Errorf("docs/sagactl.md lacks %q", name)
		}
		flags = append(flags, c.Flags...)
	}
	for _, f := range flags {
		// Flags stand between backquotes or in a list of them.
		if name := f.Names()[0]; !regexp.MustCompile("`-" + name + "\\b").MatchString(text) {
			t.Errorf("docs/sagactl.md lacks the flag -%s", name)
		}
	}
}

func TestTheDocumentationHasAllExitCodes(t *testing.T) {
	text := readDocs(t)
	for _, code := range []int{
		exitOK, exitFailure, exitUsage, exitNotFound, exitRefused, exitChanged, exitUnconfirmed, exitTimeout, exitAmiss, exitInterrupted,
	} {
		if !strings.Contains(text, "\n| "+strconv.Itoa(code)+" | ") {
			t.Errorf("docs/sagactl.md lacks the exit code %d", code)
		}
	}
}

func TestTheDocumentationHasAllFieldsOfJSON(t *testing.T) {
	text := readDocs(t)
	for _, v := range []any{
		showView{}, actView{}, countView{}, stuckItem{}, pauseLogView{}, store.LedgerEntry{}, store.Failure{}, store.Request{},
		saga.Diagnosis{}, saga.Plan{}, saga.PlannedStep{}, saga.BulkReport{}, saga.BulkItem{}, saga.PurgeReport{},
		signalView{}, messageView{}, saga.ScheduleInfo{}, store.Gate{}, store.Parent{}, saga.CheckReport{}, saga.CheckProblem{}, saga.Outline{}, saga.OutlineStep{},
		saga.WorkerInfo{}, saga.WorkerSaga{}, saga.WorkerAttempt{}, saga.Health{}, saga.Cause{}, amqp.Finding{}, amqp.DeadReport{}, amqp.DeadLetter{},
	} {
		for _, name := range jsonNames(reflect.TypeOf(v)) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/sagactl.md lacks the field %s of %T", name, v)
			}
		}
	}
}

// jsonNames lists the names of a struct's fields in JSON, those of embedded
// structs among them.
func jsonNames(t reflect.Type) []string {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	var out []string
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, jsonNames(f.Type)...)
		case name != "-" && name != "":
			out = append(out, name)
			if f.Type.PkgPath() == reflect.TypeFor[executionView]().PkgPath() {
				out = append(out, jsonNames(f.Type)...)
			}
		}
	}
	return out
}

// What other pages tell people to type exists.
func TestCommandsInTheDocumentationExist(t *testing.T) {
	root := (&terminal{}).root(io.Discard)
	commands := leaves("", root.Commands)
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?:`|\\n    |\\n\\t)sagactl ((?:dead )?[a-z-]+)((?: [^`\\n]*)?)").FindAllStringSubmatch(string(b), -1) {
			c := commands[m[1]]
			if c == nil {
				t.Errorf("%s has %q, which is no command", page, m[1])
				continue
			}
			for _, f := range regexp.MustCompile(` -([a-z-]+)`).FindAllStringSubmatch(m[2], -1) {
				if !slices.ContainsFunc(append(root.Flags, c.Flags...), func(g cli.Flag) bool { return g.Names()[0] == f[1] }) && !strings.Contains(m[2], "|") {
					t.Errorf("%s has the flag -%s of %q, which is none", page, f[1], m[1])
				}
			}
		}
	}
}
