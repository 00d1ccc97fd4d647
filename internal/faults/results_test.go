//go:build linux

package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A result is what came of one fault.
type result struct {
	Fault      string         `json:"fault"`
	Group      string         `json:"group"`
	OK         bool           `json:"ok"`
	Executions int            `json:"executions"`
	Lost       int            `json:"lost"`       // executions with an effect too few or too many
	Doubled    int            `json:"doubled"`    // effects under more than one key
	Recovery   float64        `json:"recovery_s"` // from the end of the fault to the end of the last execution
	Bound      float64        `json:"bound_s"`    // what recovery may take
	Statuses   map[string]int `json:"statuses"`   // of the executions
	Effects    int            `json:"effects"`    // and undos
	Repeats    int            `json:"repeats"`    // calls under a key that had had its effect
	Overrun    float64        `json:"overrun_s"`  // the longest that a call of the starter took after its ctx had ended
	Notes      []string       `json:"notes"`      // what the case measured besides
	Took       float64        `json:"took_s"`     // servers and all
	At         time.Time      `json:"at"`         //
	Build      string         `json:"build"`      // hash of the test binary
	Commit     string         `json:"commit"`     //
	Failure    string         `json:"failure,omitempty"`
}

// results is a file with the last result of each fault. With no path it keeps nothing.
type results struct {
	path, build, commit string

	mu   sync.Mutex
	last map[string]result
}

func openResults(path string) (*results, error) {
	if path == "" {
		return nil, fmt.Errorf("%s is not set: run make faults", envFile)
	}
	build, err := ownHash()
	if err != nil {
		return nil, err
	}
	r := &results{path: path, build: build, commit: os.Getenv(envCommit), last: map[string]result{}}
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.last)
	}
	if err != nil {
		return nil, fmt.Errorf("results of earlier runs, %s: %w", path, err)
	}
	return r, nil
}

// ownHash tells builds apart, with whatever is not committed.
func ownHash() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// done returns the result of a fault that this build has passed.
func (r *results) done(f fault) (result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.last[f.name]
	return old, ok && old.OK && old.Build == r.build
}

// add keeps the result of a case, in the file before anything else happens.
func (r *results) add(w *world) {
	if r.path == "" {
		w.say("%s", w.result)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.result.At, w.result.Build, w.result.Commit = time.Now(), r.build, r.commit
	w.result.Took = time.Since(w.began).Seconds()
	r.last[w.result.Fault] = w.result
	b, err := json.MarshalIndent(r.last, "", "\t")
	if err == nil {
		err = replaceFile(r.path, append(b, '\n'))
	}
	if err != nil {
		w.t.Errorf("keep the result: %v", err)
	}
	verdict := "ok    "
	if !w.result.OK {
		verdict = "FAIL  "
	}
	r.say("%s%s", verdict, w.result)
}

// replaceFile writes a file so that it is the old or the new one at any time.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (r *results) say(format string, args ...any) {
	if r.path != "" {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

func (r result) String() string {
	return fmt.Sprintf("%-44s %4d executions, %d lost, %d doubled, recovery %.1f s of %.0f s; %v, %d effects, %d repeats; %.0f s%s",
		r.Fault, r.Executions, r.Lost, r.Doubled, r.Recovery, r.Bound, r.Statuses, r.Effects, r.Repeats, r.Took,
		strings.Join(append([]string{""}, r.Notes...), "; "))
}

// print shows the table and returns how many of the faults this build has not passed.
func (r *results) print(faults []fault) (open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("\n%-46s | %10s | %4s | %7s | %s\n%s\n", "fault", "executions", "lost", "doubled", "recovery", strings.Repeat("-", 92))
	for _, f := range faults {
		x, ok := r.last[f.name]
		switch {
		case !ok || x.Build != r.build:
			open++
			fmt.Printf("%-46s | not run\n", f.name)
		case !x.OK:
			open++
			fmt.Printf("%-46s | %10d | %4d | %7d | FAILED: %s\n", f.name, x.Executions, x.Lost, x.Doubled, x.Failure)
		default:
			fmt.Printf("%-46s | %10d | %4d | %7d | %.1f s\n", f.name, x.Executions, x.Lost, x.Doubled, x.Recovery)
		}
	}
	fmt.Printf("build %s, commit %s; all results: %s\n", r.build, r.commit, r.path)
	return open
}

// printWhenInterrupted shows what is done by then; the next run goes on from there.
func (r *results) printWhenInterrupted(faults []fault) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-c; ok {
			r.print(faults)
			os.Exit(130)
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
	}
}

func TestResultsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bin", "faults.json")
	f := fault{name: "some-fault"}
	first, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := first.done(f); ok {
		t.Error("done before it was run")
	}
	w := newWorld(t, f)
	w.result.OK = true
	first.add(w)
	second, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := second.done(f); !ok {
		t.Error("a passed fault is run again")
	}
	second.build = "another"
	if _, ok := second.done(f); ok {
		t.Error("a fault that another build has passed is not run")
	}
	w.result.OK = false
	first.add(w)
	if _, ok := first.done(f); ok {
		t.Error("a failed fault is not run again")
	}
}
