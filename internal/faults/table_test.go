//go:build linux

package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A fault is one thing that goes wrong, and what has to be true afterwards.
type fault struct {
	name  string // lower case and dashes, unique
	group string // process, rabbitmq, postgres, sqlite, engine
	core  bool   // part of make test
	alone bool   // not beside another case
	run   func(*world)
}

func allFaults() []fault {
	return slices.Concat(processFaults, rabbitmqFaults, postgresFaults, sqliteFaults, engineFaults)
}

const (
	envFaults = "LEVERET_FAULTS"        // "all", or names of faults and groups, with commas; unset: the core
	envFile   = "LEVERET_FAULTS_FILE"   // where results are kept
	envCommit = "LEVERET_FAULTS_COMMIT" // goes into the results
	envForce  = "FORCE"                 // 1: run again what is done
)

// chosen returns the faults that a value of LEVERET_FAULTS names.
func chosen(all []fault, names string) ([]fault, error) {
	switch names {
	case "":
		return slices.DeleteFunc(all, func(f fault) bool { return !f.core }), nil
	case "all":
		return all, nil
	}
	var some []fault
	for name := range strings.SplitSeq(names, ",") {
		n := len(some)
		for _, f := range all {
			if f.name == name || f.group == name {
				some = append(some, f)
			}
		}
		if len(some) == n {
			var known []string
			for _, f := range all {
				known = append(known, f.name)
			}
			return nil, fmt.Errorf("there is no fault and no group %q, only %s", name, strings.Join(known, ", "))
		}
	}
	return some, nil
}

func TestFaults(t *testing.T) {
	names := os.Getenv(envFaults)
	faults, err := chosen(allFaults(), names)
	if err != nil {
		t.Fatal(err)
	}
	book := &results{}
	if names != "" {
		if book, err = openResults(os.Getenv(envFile)); err != nil {
			t.Fatal(err)
		}
		stop := book.printWhenInterrupted(faults)
		defer stop()
	}
	one := func(t *testing.T, f fault) {
		if old, ok := book.done(f); ok && os.Getenv(envForce) != "1" {
			book.say("kept  %-44s from %s; FORCE=1 runs it again", f.name, old.At.Local().Format("2 Jan 15:04"))
			return
		}
		runFault(t, f, book)
	}
	t.Run("faults", func(t *testing.T) { // returns when all have ended
		for _, f := range faults {
			if f.alone {
				t.Run(f.name, func(t *testing.T) { one(t, f) })
			}
		}
		for _, f := range faults {
			if !f.alone {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					one(t, f)
				})
			}
		}
	})
	if names != "" {
		if open := book.print(faults); open > 0 {
			t.Errorf("%d of %d faults are not passed", open, len(faults))
		}
	}
}

func runFault(t *testing.T, f fault, book *results) {
	w := newWorld(t, f)
	defer func() { // also when the case ends by Fatal
		w.result.OK = !t.Failed() && !t.Skipped() && w.finished
		book.add(w)
	}()
	f.run(w)
	if !w.finished {
		t.Error("the case did not call finish")
	}
}

func TestNamesOfFaults(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range allFaults() {
		if seen[f.name] || seen[f.group] && f.name == f.group || f.name == "all" || f.run == nil ||
			strings.Trim(f.name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("fault %q: names are unique, of lower case letters, digits and dashes", f.name)
		}
		seen[f.name] = true
		if !slices.Contains([]string{"process", "rabbitmq", "postgres", "sqlite", "engine"}, f.group) {
			t.Errorf("fault %q: there is no group %q", f.name, f.group)
		}
	}
	if _, err := chosen(allFaults(), "no-such-fault"); err == nil {
		t.Error("an unknown name is no error")
	}
}
