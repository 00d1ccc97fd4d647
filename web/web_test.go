package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/sagatest"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/web"
)

const evil = `</script><img src=x onerror=alert(1)>`

type shop struct {
	Card string `json:"card"`
	Note string `json:"note"`
}

// A world is an engine with one halted, one failed and one completed saga, of
// two tenants.
type world struct {
	h                         *sagatest.Harness
	halted, failed, completed uuid.UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	h := sagatest.New(t, nil)
	s := sagatest.Register(h, saga.Definition[shop]{
		Name: "shop", Redact: []string{"/card"},
		Steps: []saga.Step[shop]{
			{Name: "reserve", Execute: func(context.Context, *saga.Run[shop]) error { return nil }, Compensate: func(context.Context, *saga.Run[shop]) error { return nil }},
			{Name: "charge", Retry: saga.RetryPolicy{Attempts: 1}, Execute: func(_ context.Context, run *saga.Run[shop]) error {
				switch run.State.Note {
				case "halt":
					return saga.Halt(evil)
				case "fail":
					return saga.Fail(errors.New(evil))
				}
				return nil
			}},
		},
	})
	start := func(note, tenant string) uuid.UUID {
		x, err := s.Start(t.Context(), saga.Resource{Type: "order", ID: note + evil}, shop{"4111111111111111", note}, &saga.StartOptions{Tags: map[string]string{"tenant": tenant}})
		if err != nil {
			t.Fatal(err)
		}
		return x.ID
	}
	w := &world{h: h, halted: start("halt", "a"), failed: start("fail", "a"), completed: start("fine", "b")}
	h.Drain()
	return w
}

func allow(actor string) func(*http.Request, web.Action) (string, error) {
	return func(*http.Request, web.Action) (string, error) { return actor, nil }
}

// request makes one as a browser on the page would.
func request(method, target, body string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:9292", "127.0.0.1:5555"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Leveret", "1")
		r.Header.Set("Origin", "http://127.0.0.1:9292")
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func quiet(cfg web.Config) web.Config {
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

func TestRefusedWrites(t *testing.T) {
	w := newWorld(t)
	target := "/api/executions/" + w.halted.String() + "/act"
	const body = `{"act":"cancel","reason":"because"}`
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann"), Origins: []string{"https://ops.example.org"}}))
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	unset := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	for name, c := range map[string]struct {
		h      http.Handler
		method string
		body   string
		change func(*http.Request)
		want   int
	}{
		"a GET":                      {h, http.MethodGet, "", func(*http.Request) {}, http.StatusMethodNotAllowed},
		"no JSON":                    {h, http.MethodPost, body, set("Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
		"a form":                     {h, http.MethodPost, "act=cancel", set("Content-Type", "application/x-www-form-urlencoded"), http.StatusUnsupportedMediaType},
		"no header":                  {h, http.MethodPost, body, unset("X-Leveret"), http.StatusForbidden},
		"another header":             {h, http.MethodPost, body, set("X-Leveret", "true"), http.StatusForbidden},
		"neither Origin nor Referer": {h, http.MethodPost, body, unset("Origin"), http.StatusForbidden},
		"another origin":             {h, http.MethodPost, body, set("Origin", "http://evil.example"), http.StatusForbidden},
		"origin null":                {h, http.MethodPost, body, set("Origin", "null"), http.StatusForbidden},
		"another port":               {h, http.MethodPost, body, set("Origin", "http://127.0.0.1:80"), http.StatusForbidden},
		"another scheme of a listed": {h, http.MethodPost, body, set("Origin", "http://ops.example.org"), http.StatusForbidden},
		"a Referer of another":       {h, http.MethodPost, body, func(r *http.Request) { r.Header.Del("Origin"); r.Header.Set("Referer", "http://evil.example/x") }, http.StatusForbidden},
		"no body":                    {h, http.MethodPost, "", func(*http.Request) {}, http.StatusBadRequest},
		"two bodies":                 {h, http.MethodPost, body + body, func(*http.Request) {}, http.StatusBadRequest},
		"an unknown field":           {h, http.MethodPost, `{"act":"cancel","why":"x"}`, func(*http.Request) {}, http.StatusBadRequest},
		"an unknown act":             {h, http.MethodPost, `{"act":"explode","reason":"x"}`, func(*http.Request) {}, http.StatusBadRequest},
		"an act that is no act":      {h, http.MethodPost, `{"act":"read","reason":"x"}`, func(*http.Request) {}, http.StatusBadRequest},
		"no reason":                  {h, http.MethodPost, `{"act":"cancel"}`, func(*http.Request) {}, http.StatusBadRequest},
		"another revision":           {h, http.MethodPost, `{"act":"cancel","reason":"x","revision":1}`, func(*http.Request) {}, http.StatusConflict},
		"too long a body":            {h, http.MethodPost, `{"act":"cancel","reason":"` + strings.Repeat("x", 3<<20) + `"}`, func(*http.Request) {}, http.StatusRequestEntityTooLarge},
		"read-only":                  {web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann"), ReadOnly: true})), http.MethodPost, body, func(*http.Request) {}, http.StatusForbidden},
		"nobody to ask who it is":    {web.Handler(w.h.Engine, quiet(web.Config{})), http.MethodPost, body, func(*http.Request) {}, http.StatusForbidden},
		"nobody known":               {web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow(" ")})), http.MethodPost, body, func(*http.Request) {}, http.StatusForbidden},
		"somebody who may read only": {web.Handler(w.h.Engine, quiet(web.Config{Authorize: func(_ *http.Request, a web.Action) (string, error) {
			if a != web.ActionRead {
				return "", errors.New("no")
			}
			return "ann", nil
		}})), http.MethodPost, body, func(*http.Request) {}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(c.h, request(c.method, target, c.body, c.change))
			if got.Code != c.want {
				t.Errorf("got %d, want %d: %s", got.Code, c.want, got.Body)
			}
			if x := w.h.Execution(w.halted); x.Status != store.StatusHalted {
				t.Fatalf("it was done all the same: %s", x.Status)
			}
		})
	}
	t.Run("the page of a listed origin", func(t *testing.T) {
		if got := send(h, request(http.MethodPost, target, `{"act":"cancel","reason":"because","request":"one"}`, set("Origin", "https://ops.example.org"))); got.Code != http.StatusOK {
			t.Fatalf("got %d: %s", got.Code, got.Body)
		}
		trail, err := w.h.Engine.Audit(t.Context(), w.halted)
		if err != nil {
			t.Fatal(err)
		}
		if last := trail[len(trail)-1]; last.Actor != "ann" || last.Reason != "because" || last.Act != "cancel" {
			t.Errorf("the trail says %+v", last)
		}
	})
}

func TestLoopbackOnlyWithoutAuthorize(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{}))
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"from here":              {func(*http.Request) {}, http.StatusOK},
		"by name":                {func(r *http.Request) { r.Host = "localhost:9292" }, http.StatusOK},
		"over IPv6":              {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:4", "[::1]:9292" }, http.StatusOK},
		"from elsewhere":         {func(r *http.Request) { r.RemoteAddr = "10.0.0.7:5555" }, http.StatusForbidden},
		"with another Host":      {func(r *http.Request) { r.Host = "rebound.example" }, http.StatusForbidden},
		"through a proxy":        {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.7") }, http.StatusForbidden},
		"through another proxy":  {func(r *http.Request) { r.Header.Set("Forwarded", "for=10.0.0.7") }, http.StatusForbidden},
		"from nowhere one knows": {func(r *http.Request) { r.RemoteAddr = "@" }, http.StatusForbidden},
	} {
		for _, path := range []string{"/", "/api/meta", "/api/executions", assetsOf(t, h)[0]} {
			if got := send(h, request(http.MethodGet, path, "", c.change)); got.Code != c.want {
				t.Errorf("%s, %s: got %d, want %d", name, path, got.Code, c.want)
			}
		}
	}
}

var assetName = regexp.MustCompile(`(?:src|href)="(assets/[^"]+)"`)

func assetsOf(t *testing.T, h http.Handler) (list []string) {
	t.Helper()
	page := send(h, request(http.MethodGet, "/", ""))
	for _, m := range assetName.FindAllStringSubmatch(page.Body.String(), -1) {
		list = append(list, "/"+m[1])
	}
	if len(list) == 0 {
		t.Fatalf("the page names no assets: %s", page.Body)
	}
	return list
}

func TestNoInlineNoThirdParty(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{Title: evil}))
	page := send(h, request(http.MethodGet, "/", ""))
	text := page.Body.String()
	for _, bad := range []string{"<style", " style=", "onclick", "javascript:", "http://", "https://", "<img src=x"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(text) {
		t.Error("the page has a script in it")
	}
	if csp := page.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", csp)
	}
	base := strings.TrimSuffix(assetsOf(t, h)[1], "style.css")
	for _, name := range []string{"app.js", "api.js", "dom.js", "map.js", "executions.js", "execution.js", "workers.js", "dialog.js", "style.css", "icon.svg"} {
		got := send(h, request(http.MethodGet, base+name, ""))
		if got.Code != http.StatusOK {
			t.Fatalf("%s: %d", base+name, got.Code)
		}
		body := strings.ReplaceAll(got.Body.String(), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "innerHTML", "insertAdjacentHTML", "eval(", "document.write", "@import"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
		if got.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(got.Header().Get("Cache-Control"), "immutable") || got.Header().Get("Etag") == "" {
			t.Errorf("%s has the headers %v", name, got.Header())
		}
		again := send(h, request(http.MethodGet, base+name, "", func(r *http.Request) { r.Header.Set("If-None-Match", got.Header().Get("Etag")) }))
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s again: %d with %d bytes", name, again.Code, again.Body.Len())
		}
	}
	for _, bad := range []string{base + "index.html", base + "../../config.go", base + "%2e%2e/openapi.json", "/assets/0000000000000000/app.js", "/nothing", "/api/nothing", "//evil.example/"} {
		if got := send(h, request(http.MethodGet, bad, "")); got.Code == http.StatusOK {
			t.Errorf("%s is served", bad)
		}
	}
}

// JSON is never taken for HTML: what users and errors say has no < in it.
func TestAnswersHoldNoHTML(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann")}))
	for _, path := range []string{"/api/meta", "/api/executions", "/api/overview?range=24h", "/api/workers", "/api/executions/" + w.halted.String(), "/api/executions/" + w.failed.String(), "/api/executions?status=" + "%3Cb%3E", "/api/executions?%3Cb%3E=1"} {
		got := send(h, request(http.MethodGet, path, ""))
		body, _ := io.ReadAll(got.Body)
		if got.Header().Get("Content-Type") != "application/json; charset=utf-8" || !json.Valid(body) {
			t.Errorf("%s: %d, %s: %s", path, got.Code, got.Header().Get("Content-Type"), body)
		}
		if strings.ContainsAny(string(body), "<>") {
			t.Errorf("%s has HTML: %s", path, body)
		}
	}
}

func get[V any](t *testing.T, h http.Handler, path string) (v V) {
	t.Helper()
	got := send(h, request(http.MethodGet, path, ""))
	if got.Code != http.StatusOK {
		t.Fatalf("%s: %d: %s", path, got.Code, got.Body)
	}
	if err := json.Unmarshal(got.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

type executions struct {
	Executions []struct {
		ID     uuid.UUID    `json:"id"`
		Status store.Status `json:"status"`
	} `json:"executions"`
}

func (e executions) ids() (list []uuid.UUID) {
	for _, x := range e.Executions {
		list = append(list, x.ID)
	}
	return list
}

func TestListsFilter(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann")}))
	for query, want := range map[string][]uuid.UUID{
		"":                                {w.completed, w.failed, w.halted},
		"status=halted":                   {w.halted},
		"status=halted,compensated":       {w.failed, w.halted},
		"status=halted&status=completed":  {w.completed, w.halted},
		"attention=halted":                {w.halted},
		"resource=ORDER%2Ffail":           {w.failed},
		"tag=tenant%3Db":                  {w.completed},
		"failed_step=charge":              {w.failed},
		"diagnosis=halted":                {w.halted},
		"saga=other":                      nil,
		"id=" + w.failed.String():         {w.failed},
		"unfinished=true":                 {w.halted},
		"created_to=2001-01-01T00:00:00Z": nil,
	} {
		got := get[executions](t, h, "/api/executions?"+query).ids()
		for _, list := range [][]uuid.UUID{got, want} { // some were started in one millisecond
			slices.SortFunc(list, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	for _, bad := range []string{"status=tired", "limit=0", "limit=1001", "after=x", "id=x", "created_from=yesterday", "tag=x", "stuck_for=-1h", "unfinished=perhaps", "colour=red", "attention=x"} {
		if got := send(h, request(http.MethodGet, "/api/executions?"+bad, "")); got.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d", bad, got.Code)
		}
	}
}

func TestScopeNarrowsEverything(t *testing.T) {
	w := newWorld(t)
	scope := store.Filter{Tags: map[string]string{"tenant": "b"}}
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("bob"), Scope: func(*http.Request) (store.Filter, error) { return scope, nil }}))
	if got := get[executions](t, h, "/api/executions").ids(); !slices.Equal(got, []uuid.UUID{w.completed}) {
		t.Errorf("the list has %v", got)
	}
	if got := get[executions](t, h, "/api/executions?tag=tenant%3Da").ids(); len(got) > 0 {
		t.Errorf("asking for another tenant shows %v", got)
	}
	overview := get[map[string]any](t, h, "/api/overview?range=24h")
	if text := fmt.Sprint(overview); strings.Contains(text, "onerror") || strings.Contains(text, "halted") {
		t.Errorf("the overview has what is another tenant's: %v", overview)
	}
	for _, r := range []*http.Request{
		request(http.MethodGet, "/api/executions/"+w.halted.String(), ""),
		request(http.MethodGet, "/api/executions/"+w.halted.String()+"/plan?act=cancel", ""),
		request(http.MethodPost, "/api/executions/"+w.halted.String()+"/act", `{"act":"cancel","reason":"x"}`),
		request(http.MethodPost, "/api/executions/"+w.halted.String()+"/signal", `{"name":"x","reason":"x"}`),
	} {
		if got := send(h, r); got.Code != http.StatusNotFound {
			t.Errorf("%s: got %d: %s", r.URL, got.Code, got.Body)
		}
	}
	got := send(h, request(http.MethodPost, "/api/bulk", `{"act":"cancel","filter":"status=halted","reason":"x"}`))
	if got.Code != http.StatusOK || w.h.Execution(w.halted).Status != store.StatusHalted {
		t.Errorf("a bulk act reached another tenant: %s", got.Body)
	}
	if got := send(h, request(http.MethodPost, "/api/pause", `{"saga":"shop","pause":true,"reason":"x"}`)); got.Code != http.StatusForbidden {
		t.Errorf("a scoped visitor paused a saga: %d", got.Code)
	}
	scope = store.Filter{Statuses: []store.Status{store.StatusHalted}}
	if got := send(h, request(http.MethodGet, "/api/executions", "")); got.Code != http.StatusForbidden {
		t.Errorf("a scope that is none: %d", got.Code)
	}
}

func TestStatesAreHidden(t *testing.T) {
	w := newWorld(t)
	var denied web.Action
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: func(_ *http.Request, a web.Action) (string, error) {
		if a == denied {
			return "", errors.New("no")
		}
		return "ann", nil
	}}))
	path := "/api/executions/" + w.halted.String()
	body := send(h, request(http.MethodGet, path, "")).Body.String()
	if strings.Contains(body, "4111") || !strings.Contains(body, `"card":"[redacted]"`) {
		t.Errorf("what is redacted: %s", body)
	}
	edit := `{"act":"edit_state","reason":"typo","state":{"card":"[redacted]","note":"fine"}}`
	if got := send(h, request(http.MethodPost, path+"/act", edit)); got.Code != http.StatusOK {
		t.Fatalf("%d: %s", got.Code, got.Body)
	}
	if state := string(w.h.Execution(w.halted).State); !strings.Contains(state, "4111111111111111") || !strings.Contains(state, "fine") {
		t.Errorf("the state is now %s", state)
	}
	// A page sends a text: its numbers keep all their digits.
	edit = `{"act":"edit_state","reason":"typo","state_text":"{\"card\":\"[redacted]\",\"note\":\"again\",\"n\":13545432961546443001}"}`
	if got := send(h, request(http.MethodPost, path+"/act", edit)); got.Code != http.StatusOK {
		t.Fatalf("%d: %s", got.Code, got.Body)
	}
	if body := send(h, request(http.MethodGet, path, "")).Body.String(); !strings.Contains(body, `13545432961546443001,\n`) && !strings.Contains(body, `13545432961546443001\n`) {
		t.Errorf("a long number: %s", body)
	}
	denied = web.ActionReadState
	if body := send(h, request(http.MethodGet, path, "")).Body.String(); strings.Contains(body, "card") || !strings.Contains(body, `"state_hidden":true`) {
		t.Errorf("who may not see states: %s", body)
	}
}

func TestActsWithTheirPlan(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann")}))
	path := "/api/executions/" + w.halted.String()
	plan := get[saga.Plan](t, h, path+"/plan?act=compensate")
	if plan.EndsAs != store.StatusCompensated || len(plan.Steps) == 0 || plan.Steps[0].Name != "reserve" && plan.Steps[len(plan.Steps)-1].Name != "reserve" {
		t.Errorf("the plan is %+v", plan)
	}
	if got := send(h, request(http.MethodGet, path+"/plan?act=explode", "")); got.Code != http.StatusBadRequest {
		t.Errorf("got %d", got.Code)
	}
	dry := send(h, request(http.MethodPost, "/api/bulk", `{"act":"compensate","filter":"status=halted","reason":"x","dry_run":true}`))
	if dry.Code != http.StatusOK || w.h.Execution(w.halted).Status != store.StatusHalted {
		t.Fatalf("the dry run: %d: %s", dry.Code, dry.Body)
	}
	if got := send(h, request(http.MethodPost, "/api/bulk", `{"act":"compensate","filter":"","reason":"x"}`)); got.Code != http.StatusBadRequest {
		t.Errorf("a bulk act on everything: %d", got.Code)
	}
	body := fmt.Sprintf(`{"act":"compensate","reason":"x","revision":%d,"request":"one"}`, plan.Revision)
	for range 2 { // the second time it is the same
		if got := send(h, request(http.MethodPost, path+"/act", body)); got.Code != http.StatusOK && got.Code != http.StatusConflict {
			t.Fatalf("%d: %s", got.Code, got.Body)
		}
	}
	w.h.Drain()
	if x := w.h.Execution(w.halted); x.Status != store.StatusCompensated {
		t.Errorf("it is %s", x.Status)
	}
}

func TestMountPaths(t *testing.T) {
	w := newWorld(t)
	for name, h := range map[string]http.Handler{
		"stripped":     http.StripPrefix("/ops/sagas", web.Handler(w.h.Engine, quiet(web.Config{}))),
		"not stripped": web.Handler(w.h.Engine, quiet(web.Config{BasePath: "/ops/sagas"})),
		"with a slash": web.Handler(w.h.Engine, quiet(web.Config{BasePath: "/ops/sagas/"})),
		"both":         http.StripPrefix("/ops/sagas", web.Handler(w.h.Engine, quiet(web.Config{BasePath: "/ops/sagas"}))),
	} {
		server := httptest.NewServer(h)
		defer server.Close()
		got, err := http.Get(server.URL + "/ops/sagas?x=1")
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != http.StatusOK || got.Request.URL.Path != "/ops/sagas/" {
			t.Errorf("%s: %d at %s", name, got.StatusCode, got.Request.URL)
		}
		for _, path := range []string{"/ops/sagas/", "/ops/sagas/api/meta", "/ops/sagas/api/executions/" + w.failed.String()} {
			got, err := http.Get(server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = got.Body.Close()
			if got.StatusCode != http.StatusOK {
				t.Errorf("%s, %s: %d", name, path, got.StatusCode)
			}
		}
	}
}

// The file describes the parameters, the bodies and the paths that there are.
func TestOpenAPIIsComplete(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{Authorize: allow("ann")}))
	doc := get[struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name string `json:"name"`
			} `json:"parameters"`
		} `json:"paths"`
	}](t, h, "/api/openapi.json")
	for path, methods := range doc.Paths {
		for method := range methods {
			got := send(h, request(strings.ToUpper(method), strings.ReplaceAll(path, "{id}", w.completed.String()), ""))
			if got.Code == http.StatusNotFound || got.Code == http.StatusMethodNotAllowed {
				t.Errorf("%s %s is described, and answered with %d", method, path, got.Code)
			}
		}
	}
	var named []string
	for _, p := range doc.Paths["/api/executions"]["get"].Parameters {
		named = append(named, p.Name)
	}
	for _, p := range web.FilterParameters {
		if !slices.Contains(named, p) {
			t.Errorf("the parameter %s is not described", p)
		}
	}
	for _, p := range named {
		if p == "tag" { // which has to be one
			p = "tag=a"
		}
		if got := send(h, request(http.MethodGet, "/api/executions?"+p+"=", "")); got.Code != http.StatusOK {
			t.Errorf("the parameter %s is described, and not known: %s", p, got.Body)
		}
	}
}

func TestBesideTheMountPoint(t *testing.T) {
	w := newWorld(t)
	h := web.Handler(w.h.Engine, quiet(web.Config{BasePath: "/ops/sagas"}))
	if got := send(h, request(http.MethodGet, "/ops/sagasapi/meta", "")); got.Code != http.StatusNotFound {
		t.Errorf("got %d", got.Code)
	}
}
