// Package arrows holds no code. Its test keeps the import arrows between Leveret's packages, so that
// a service links what it uses and no more: one that takes saga and store/memory gets no driver, no
// broker and no test code.
package arrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/leveret-go/leveret"

const amqp091 = "github.com/rabbitmq/amqp091-go"

// cronParser is what saga reads schedules with.
const cronParser = "github.com/robfig/cron/v3"

// schemaLibrary is what saga makes and checks JSON Schemas with.
const schemaLibrary = "github.com/google/jsonschema-go"

// heavy are the brokers, drivers and mappers that only the package made for each may link. A path
// stands for itself and all below it, but database/sql for itself alone: database/sql/driver holds
// nothing but interfaces, and uuid implements them.
var heavy = []string{
	amqp091,
	"github.com/jackc/pgx",
	"github.com/uptrace/bun",
	"modernc.org",
	"database/sql",
}

const cliLibrary = "github.com/urfave/cli"

const otel = "go.opentelemetry.io"

// otelAPI is what the packages of OpenTelemetry's API are and link, besides the
// standard library and uuid, and otelSDK what is not to be among them.
var (
	otelAPI = []string{
		otel + "/otel", otel + "/auto/sdk", "github.com/go-logr/logr", "github.com/go-logr/stdr", "github.com/cespare/xxhash",
		"github.com/google/uuid",
	}
	otelSDK = []string{otel + "/otel/sdk", otel + "/otel/exporters"}
)

// A pkg is a package of the module as it is built, without its tests.
type pkg struct {
	ImportPath string
	Imports    []string // directly
	Deps       []string // all that is linked
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// A rule is one arrow, or a group of them.
type rule struct {
	arrow string // what the failure says
	from  func(name string) bool
	bad   func(p pkg) []string // what p imports or links against the rule
}

var rules = []rule{
	{
		arrow: "store -> standard library and uuid",
		from:  is("store"),
		bad: linked(func(path string) bool {
			return !standard(path) && !under(path, "github.com/google/uuid")
		}),
	},
	{
		arrow: "saga -> store, uuid, a parser of cron and JSON Schema, with no broker, driver or mapper",
		from:  below("saga"),
		bad: linked(func(path string) bool {
			return isHeavy(path) || ours(path, "saga", "store=") ||
				!standard(path) && !under(path, module) && !under(path, "github.com/google/uuid") && !under(path, cronParser) && !under(path, schemaLibrary)
		}),
	},
	{
		arrow: "store/* -> store and store/internal, never saga nor each other",
		from:  below("store/"),
		bad: func(p pkg) []string {
			self, _, _ := strings.Cut(strings.TrimPrefix(p.name(), "store/"), "/")
			return linked(func(path string) bool {
				return ours(path, "store=", "store/internal", "store/"+self)
			})(p)
		},
	},
	{
		arrow: "amqp -> saga",
		from:  below("amqp"),
		bad:   linked(func(path string) bool { return ours(path, "amqp", "saga", "store=") }),
	},
	{
		arrow: "inproc -> saga, with no broker, driver or mapper",
		from:  below("inproc"),
		bad:   linked(func(path string) bool { return isHeavy(path) || ours(path, "inproc", "saga", "store=") }),
	},
	{
		arrow: "fence -> standard library, as participants take it without the engine",
		from:  func(name string) bool { return below("fence")(name) && !below("fence/pgxfence")(name) },
		bad: linked(func(path string) bool {
			return ours(path, "fence=", "fence/internal") || !standard(path) && !under(path, module)
		}),
	},
	{
		arrow: "fence/pgxfence -> fence and pgx",
		from:  below("fence/pgxfence"),
		bad: linked(func(path string) bool {
			return ours(path, "fence") || under(path, amqp091) || under(path, "github.com/uptrace/bun") || under(path, "modernc.org")
		}),
	},
	{
		arrow: "amqp is the only importer of amqp091-go",
		from:  func(name string) bool { return !below("amqp")(name) },
		bad:   imported(func(path string) bool { return under(path, amqp091) }),
	},
	{
		arrow: "web -> saga, store and internal/view, with no broker, driver or mapper",
		from:  below("web"),
		bad:   linked(func(path string) bool { return isHeavy(path) || ours(path, "web", "internal/view", "saga", "store=") }),
	},
	{
		arrow: "telemetry -> saga, store and the API of OpenTelemetry, with no SDK, broker, driver or mapper",
		from:  below("telemetry"),
		bad: linked(func(path string) bool {
			return isHeavy(path) || ours(path, "telemetry", "saga", "store=") ||
				!standard(path) && !under(path, module) && !under(path, cronParser) && !under(path, schemaLibrary) && !slices.ContainsFunc(otelAPI, func(dir string) bool { return under(path, dir) }) ||
				slices.ContainsFunc(otelSDK, func(dir string) bool { return under(path, dir) })
		}),
	},
	{
		arrow: "OpenTelemetry is linked through telemetry only",
		from: func(name string) bool {
			return !below("telemetry")(name) && !below("cmd")(name) && !below("examples")(name)
		},
		bad: linked(func(path string) bool { return under(path, otel) }),
	},
	{
		arrow: "the command line library is linked by commands only",
		from:  func(name string) bool { return !below("cmd")(name) },
		bad:   linked(func(path string) bool { return under(path, cliLibrary) }),
	},
	{
		arrow: "sagatest -> saga, store/memory and inproc",
		from:  below("sagatest"),
		bad: linked(func(path string) bool {
			return isHeavy(path) || ours(path, "sagatest", "saga", "store=", "store/memory", "inproc")
		}),
	},
	{
		arrow: "storetest -> store and saga, tested with the standard library alone",
		from:  below("storetest"),
		bad: linked(func(path string) bool {
			return ours(path, "storetest", "saga", "store=") ||
				!standard(path) && !under(path, module) && !under(path, "github.com/google/uuid") && !under(path, cronParser) && !under(path, schemaLibrary) && !under(path, "github.com/google/go-cmp")
		}),
	},
	{
		arrow: "testing is linked by test harnesses only",
		from: func(name string) bool {
			return !below("storetest")(name) && !below("sagatest")(name) && !below("internal")(name)
		},
		bad: linked(func(path string) bool { return path == "testing" }),
	},
	{
		arrow: "internal/testenv is used by tests only",
		from:  func(name string) bool { return !below("internal/testenv")(name) },
		bad:   linked(func(path string) bool { return under(path, module+"/internal/testenv") }),
	},
	{
		arrow: "goleak is used by tests only",
		from:  func(string) bool { return true },
		bad:   linked(func(path string) bool { return under(path, "go.uber.org/goleak") }),
	},
}

func TestArrows(t *testing.T) {
	for _, broken := range check(list(t)) {
		t.Error(broken)
	}
}

// check returns a sentence for each arrow that a package breaks.
func check(pkgs []pkg) []string {
	var broken []string
	for _, p := range pkgs {
		for _, r := range rules {
			if !r.from(p.name()) {
				continue
			}
			if bad := r.bad(p); len(bad) > 0 {
				broken = append(broken, fmt.Sprintf("%s breaks the arrow %q: %s", p.name(), r.arrow, strings.Join(bad, ", ")))
			}
		}
	}
	return broken
}

func TestABrokenArrowIsNamed(t *testing.T) {
	for _, row := range []struct {
		name string
		deps []string
		want string // part of the arrow; empty: nothing is broken
	}{
		{"store", []string{"context", "github.com/google/uuid", "database/sql/driver"}, ""},
		{"store", []string{"github.com/google/go-cmp/cmp"}, "store -> standard"},
		{"store", []string{"testing"}, "testing is linked"},
		{"store", []string{module + "/saga"}, "store -> standard"},
		{"saga", []string{module + "/store", "encoding/json"}, ""},
		{"saga", []string{module + "/store/memory"}, "saga -> store"},
		{"saga", []string{"database/sql"}, "saga -> store"},
		{"saga", []string{"github.com/jackc/pgx/v5"}, "saga -> store"},
		{"saga/internal/x", []string{"testing"}, "testing is linked"},
		{"store/postgres", []string{module + "/store", module + "/store/internal/row", "github.com/jackc/pgx/v5"}, ""},
		{"store/postgres", []string{module + "/store/sqlite"}, "store/* ->"},
		{"store/memory", []string{module + "/saga"}, "store/* ->"},
		{"store/internal/row", []string{module + "/store/sqlite"}, "store/* ->"},
		{"amqp", []string{module + "/saga", module + "/store", amqp091}, ""},
		{"amqp", []string{module + "/store/postgres"}, "amqp -> saga"},
		{"inproc", []string{module + "/amqp"}, "inproc -> saga"},
		{"web", []string{module + "/saga", module + "/store", "net/http"}, ""},
		{"web", []string{module + "/amqp", amqp091}, "web -> saga"},
		{"web", []string{module + "/store/memory"}, "web -> saga"},
		{"telemetry", []string{module + "/saga", module + "/store", otel + "/otel/metric", otel + "/auto/sdk", "github.com/go-logr/logr"}, ""},
		{"telemetry", []string{otel + "/otel/sdk/trace"}, "telemetry -> saga"},
		{"telemetry", []string{otel + "/otel/exporters/stdout/stdouttrace"}, "telemetry -> saga"},
		{"telemetry", []string{"github.com/stretchr/testify/require"}, "telemetry -> saga"},
		{"telemetry", []string{module + "/inproc"}, "telemetry -> saga"},
		{"telemetry", []string{module + "/amqp", amqp091}, "telemetry -> saga"},
		{"saga", []string{otel + "/otel/trace"}, "through telemetry only"},
		{"amqp", []string{otel + "/otel"}, "through telemetry only"},
		{"cmd/saga-demo", []string{module + "/telemetry", otel + "/otel/trace"}, ""},
		{"fence", []string{module + "/fence/internal/core", "database/sql", "net/http"}, ""},
		{"fence", []string{module + "/saga"}, "fence -> standard"},
		{"fence", []string{module + "/fence/pgxfence", "github.com/jackc/pgx/v5"}, "fence -> standard"},
		{"fence", []string{"github.com/google/uuid"}, "fence -> standard"},
		{"fence/internal/core", []string{"github.com/jackc/pgx/v5"}, "fence -> standard"},
		{"fence/internal/core", []string{"testing"}, "testing is linked"},
		{"fence/pgxfence", []string{module + "/fence", module + "/fence/internal/core", "github.com/jackc/pgx/v5"}, ""},
		{"fence/pgxfence", []string{module + "/store/postgres"}, "fence/pgxfence -> fence and pgx"},
		{"fence/pgxfence", []string{"modernc.org/sqlite"}, "fence/pgxfence -> fence and pgx"},
		{"storetest", []string{module + "/store", module + "/saga", "testing"}, ""},
		{"storetest", []string{"github.com/stretchr/testify/require"}, "storetest -> store"},
		{"sagatest", []string{module + "/saga", module + "/store", module + "/store/memory", module + "/inproc", "testing"}, ""},
		{"sagatest", []string{module + "/store/sqlite"}, "sagatest -> saga"},
		{"cmd/saga-demo", []string{module + "/amqp", module + "/web", module + "/store/postgres", "github.com/jackc/pgx/v5"}, ""},
		{"cmd/saga-demo", []string{amqp091}, "only importer"},
		{"cmd/sagactl", []string{module + "/amqp", module + "/store/postgres", cliLibrary + "/v3"}, ""},
		{"web", []string{cliLibrary + "/v3"}, "by commands only"},
		{"cmd/saga-demo", []string{module + "/internal/testenv"}, "internal/testenv"},
		{"internal/sim", []string{"go.uber.org/goleak"}, "goleak"},
	} {
		got := check([]pkg{{ImportPath: module + "/" + row.name, Imports: row.deps, Deps: row.deps}})
		if row.want == "" && len(got) > 0 {
			t.Errorf("%s linking %v: %v, want nothing", row.name, row.deps, got)
		}
		if row.want != "" && (len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), row.want)) {
			t.Errorf("%s linking %v: %v, want the arrow %q named", row.name, row.deps, got, row.want)
		}
	}
}

// list returns the packages of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	root := filepath.Join("..", "..")
	touch(t, root)
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// touch looks at every source file of the module. go test caches a result by the files the test
// itself looked at; it does not see those that go list reads.
func touch(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.Name() == "go.mod" || strings.HasSuffix(path, ".go"):
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func is(want string) func(string) bool { return func(name string) bool { return name == want } }

// below matches a package and those below it. With a slash at the end it leaves out the package.
func below(dir string) func(string) bool {
	return func(name string) bool {
		if strings.HasSuffix(dir, "/") {
			return strings.HasPrefix(name, dir)
		}
		return under(name, dir)
	}
}

func linked(bad func(path string) bool) func(pkg) []string {
	return func(p pkg) []string { return filter(p.Deps, bad) }
}

func imported(bad func(path string) bool) func(pkg) []string {
	return func(p pkg) []string { return filter(p.Imports, bad) }
}

func filter(paths []string, bad func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !bad(path) })
}

func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// standard reports whether path is of the standard library, as go list prints it: its first element
// has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func isHeavy(path string) bool {
	return slices.ContainsFunc(heavy, func(h string) bool {
		return path == h || h != "database/sql" && under(path, h)
	})
}

// ours reports whether path is a package of the module that is not among the allowed ones. Each
// stands for itself and all below it, with "=" at the end for itself alone.
func ours(path string, allowed ...string) bool {
	name, ok := strings.CutPrefix(path, module+"/")
	return ok && !slices.ContainsFunc(allowed, func(a string) bool {
		exact, only := strings.CutSuffix(a, "=")
		return name == exact || !only && under(name, a)
	})
}
