package telemetry

import (
	"cmp"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leveret-go/leveret/inproc"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A made is an instrument as its documentation or the SDK shows it.
type made struct{ name, kind, unit, labels, what string }

func labelsOf(keys []attribute.Key) string {
	var out []string
	for _, k := range keys {
		out = append(out, string(k))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// everything lets all instruments take a value, and returns them as they are
// collected.
func everything(t *testing.T) (all []made) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	tel, err := New(Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	e, err := saga.New(saga.Config{Store: memory.New(), Publisher: inproc.New(nil), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tel.Watch(e, "default")
	for _, kind := range []saga.EventKind{
		saga.EventStarted, saga.EventCompleted, saga.EventHalted, saga.EventCompensationStarted, saga.EventResumed,
		saga.EventStepFinished, saga.EventStepStuck, saga.EventPointerStale, saga.EventWaiting, saga.EventSignal,
	} {
		tel.Observe(t.Context(), saga.Event{Kind: kind, Saga: "s", Step: "a", Direction: store.DirectionExecute, Status: store.StatusCompleted})
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		r := made{name: m.Name, unit: m.Unit, what: m.Description}
		var set attribute.Set
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			r.kind, set = "counter", d.DataPoints[0].Attributes
		case metricdata.Gauge[int64]:
			r.kind, set = "gauge", d.DataPoints[0].Attributes
		case metricdata.Gauge[float64]:
			r.kind, set = "gauge", d.DataPoints[0].Attributes
		case metricdata.Histogram[float64]:
			r.kind, set = "histogram", d.DataPoints[0].Attributes
		}
		var keys []attribute.Key
		for _, kv := range set.ToSlice() {
			keys = append(keys, kv.Key)
		}
		r.labels = labelsOf(keys)
		all = append(all, r)
	}
	return all
}

var (
	docRow = regexp.MustCompile("(?m)^\\| `(leveret\\.[a-z._]+)` \\| (counter|gauge|histogram) \\| `([^`]+)` \\|([^|]*)\\| ([^|]+) \\|$")
	inCode = regexp.MustCompile("`([^`]+)`")
)

// documented reads the tables of docs/telemetry.md.
func documented(t *testing.T) (all []made, text string) {
	t.Helper()
	b, err := os.ReadFile("../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range docRow.FindAllStringSubmatch(string(b), -1) {
		var keys []attribute.Key
		for _, k := range inCode.FindAllStringSubmatch(m[4], -1) {
			keys = append(keys, attribute.Key(k[1]))
		}
		all = append(all, made{name: m[1], kind: m[2], unit: m[3], labels: labelsOf(keys), what: m[5]})
	}
	return all, string(b)
}

func TestDocumentationListsTheMetricsAsTheyAre(t *testing.T) {
	docs, text := documented(t)
	if len(docs) != len(catalog) {
		t.Errorf("%d metrics documented, %d in the catalog", len(docs), len(catalog))
	}
	for _, i := range catalog {
		n := slices.IndexFunc(docs, func(m made) bool { return m.name == i.name })
		if n < 0 {
			t.Errorf("%s is not documented", i.name)
			continue
		}
		if d := docs[n]; d.unit != i.unit || d.labels != labelsOf(i.labels) || d.what != i.what {
			t.Errorf("documented %+v\nis         %s %s %q %q", d, i.name, i.unit, labelsOf(i.labels), i.what)
		}
	}
	collected := everything(t)
	// There is nothing to tell of a sweep before Run.
	byHand := []made{{sweepLag.name, "gauge", sweepLag.unit, "", sweepLag.what}, {sweepAge.name, "gauge", sweepAge.unit, "", sweepAge.what}}
	collected = append(collected, byHand...)
	order := func(a, b made) int { return cmp.Compare(a.name, b.name) }
	slices.SortFunc(collected, order)
	slices.SortFunc(docs, order)
	if !slices.Equal(collected, docs) {
		t.Errorf("collected  %+v\ndocumented %+v", collected, docs)
	}

	row := func(key attribute.Key) string {
		i := strings.LastIndex(text, "\n| `"+string(key)+"` |")
		if i < 0 {
			t.Fatalf("no row about the values of %s", key)
		}
		line, _, _ := strings.Cut(text[i+1:], "\n")
		return line
	}
	for _, o := range outcomes {
		if !strings.Contains(row(keyOutcome), "`"+o+"`") {
			t.Errorf("outcome %s is not documented", o)
		}
	}
	for _, ev := range []saga.Event{
		{Kind: saga.EventPointerOrphan}, {Kind: saga.EventPointerStale}, {Kind: saga.EventPointerUnknown}, {Kind: saga.EventPointerEarly},
		{Kind: saga.EventPointerBusy}, {Kind: saga.EventPointerUnroutable}, {Kind: saga.EventPointerUnpublished}, {Kind: saga.EventPointerDead},
		{Kind: saga.EventPointerDead, Reason: saga.DeadForeignStore}, {Kind: saga.EventPointerDead, Reason: saga.DeadFutureEpoch},
		{Kind: saga.EventPointerDead, Reason: saga.DeadVersion}, {Kind: "pointer.new"},
	} {
		if !strings.Contains(row(keyReason), "`"+reason(ev)+"`") {
			t.Errorf("reason %s is not documented", reason(ev))
		}
	}
}

// Nothing that names one execution, or comes from a person or an error, is an
// attribute of a metric.
func TestNoMetricHasAnID(t *testing.T) {
	allowed := []attribute.Key{keySaga, keyStep, keyDirection, keyStatus, keyOutcome, keyReason, keyPartition, keyGate}
	for _, i := range catalog {
		for _, k := range i.labels {
			if !slices.Contains(allowed, k) {
				t.Errorf("%s has the attribute %s", i.name, k)
			}
		}
	}
}
