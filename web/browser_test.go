package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/web"
)

// A browser is Chromium with one page open, and what it complained about.
type browser struct {
	*testing.T
	ctx    context.Context
	url    string
	mu     sync.Mutex
	faults []string
	clicks int
}

// open opens the console in Chromium. Without Chromium the test is skipped, or
// fails where services are required.
func open(t *testing.T, url string) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("LEVERET_REQUIRE_SERVICES") == "1" {
			t.Fatal("there is no Chromium")
		}
		t.Skip("SKIPPED: there is no Chromium, the pages are not tested")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), opts...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until it has ended, so that its folder can be removed
		cancel()
	})
	b := &browser{T: t, ctx: ctx, url: url}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, e.ExceptionDetails.Error())
		case *log.EventEntryAdded: // of the network and the policy too
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		case *runtime.EventConsoleAPICalled:
			b.faults = append(b.faults, fmt.Sprint("console: ", e.Type))
		}
	})
	b.do("opening the console", log.Enable(), chromedp.Navigate(url+"/"), chromedp.WaitVisible("nav a[aria-current]", chromedp.ByQuery))
	return b
}

func (b *browser) do(what string, actions ...chromedp.Action) {
	b.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		var text string
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
		defer cancel()
		_ = chromedp.Run(ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		b.Fatalf("%s: %v; the page says:\n%s", what, err, text)
	}
}

// click clicks what an XPath finds.
func (b *browser) click(xpath string) {
	b.Helper()
	b.clicks++
	b.do("click "+xpath, chromedp.Click(xpath, chromedp.BySearch, chromedp.NodeVisible))
}

func (b *browser) see(xpath string) {
	b.Helper()
	b.do("see "+xpath, chromedp.WaitVisible(xpath, chromedp.BySearch))
}

func (b *browser) go_(hash string, xpath string) {
	b.Helper()
	b.do("go to "+hash, chromedp.Evaluate(`location.hash = `+fmt.Sprintf("%q", hash), nil), chromedp.WaitVisible(xpath, chromedp.BySearch))
}

// fine fails the test if the browser complained.
func (b *browser) fine() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.Errorf("the browser complained: %s", strings.Join(b.faults, "; "))
	}
}

// A yard is an engine at work, whose courier is broken until it is mended.
type yard struct {
	e      *saga.Engine
	url    string
	failed []uuid.UUID
	mended atomic.Bool
}

const approval saga.Signal[bool] = "approval"

func newYard(t *testing.T, cfg web.Config) *yard {
	t.Helper()
	e, err := saga.New(saga.Config{Store: memory.New(), SweepEvery: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{e: e}
	fine := func(context.Context, *saga.Run[shop]) error { return nil }
	s, err := saga.Register(e, saga.Definition[shop]{
		Name: "checkout", Redact: []string{"/card"},
		Steps: []saga.Step[shop]{
			{Name: "stock", Execute: fine},
			{Name: "approve", If: func(s shop) bool { return s.Note == "ask" }, Await: &saga.Await[shop]{
				Signal: approval, Timeout: time.Hour, Prompt: "May it go out?", Choices: []saga.Choice{approval.Choice("Yes", true), approval.Choice("No", false)},
			}, Execute: fine},
			{Name: "courier", Execute: func(context.Context, *saga.Run[shop]) error {
				if y.mended.Load() {
					return nil
				}
				return saga.Fail(saga.Class("no_courier", errors.New("none is free"+evil)))
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for i := range 5 {
		x, err := s.Start(t.Context(), saga.Resource{Type: "order", ID: fmt.Sprint(i, evil)}, shop{Card: "4111111111111111"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(t.Context(), x.ID); err != nil {
			t.Fatal(err)
		}
		y.failed = append(y.failed, x.ID)
	}
	if _, err := s.Start(t.Context(), saga.Resource{Type: "order", ID: "asks"}, shop{Note: "ask"}, nil); err != nil {
		t.Fatal(err)
	}
	if cfg.Authorize == nil {
		cfg.Authorize = web.LoopbackOnly("ann")
	}
	cfg.PollInterval = 2 * time.Second
	server := httptest.NewServer(web.Handler(e, quiet(cfg)))
	t.Cleanup(server.Close)
	y.url = server.URL
	return y
}

// From the first page to an execution that has completed, after its plan.
func TestOnCallWalk(t *testing.T) {
	y := newYard(t, web.Config{})
	b := open(t, y.url)
	b.see(`//h2[text()="Needs attention"]`)
	y.mended.Store(true)
	b.click(`//a[contains(., "no_courier")]`)
	b.see(`//h1[text()="Executions"]`)
	b.click(`(//table//a)[1]`)
	b.see(`//p[@id="diagnosis"]`)
	b.click(`//button[text()="retry"]`)
	b.see(`//dialog//li[contains(., "courier")]`)
	b.see(`//dialog//span[text()="completed"]`)
	b.do("give a reason", chromedp.SendKeys(`//dialog//input[@name="reason"]`, "the courier is back", chromedp.BySearch))
	b.click(`//button[text()="Do it"]`)
	b.see(`//h1//span[text()="completed"]`)
	b.see(`//td[text()="the courier is back"]`)
	if b.clicks > 8 {
		t.Errorf("it took %d clicks", b.clicks)
	}
	b.fine()
}

func TestPagesInBothThemesAndSmall(t *testing.T) {
	y := newYard(t, web.Config{})
	b := open(t, y.url)
	for _, theme := range []string{"light", "dark"} {
		b.do("theme", chromedp.SetValue("#theme", theme, chromedp.ByQuery), chromedp.Evaluate(`document.getElementById("theme").dispatchEvent(new Event("change"))`, nil))
		for _, width := range []int64{1280, 320} {
			b.do("size", emulation.SetDeviceMetricsOverride(width, 800, 1, false))
			for hash, xpath := range map[string]string{
				"#/?range=1h": `//h2[contains(., "Needs attention")]`, "#/executions": `//h1[text()="Executions"]`, "#/workers": `//h2[text()="Workers"]`,
				"#/executions/" + y.failed[0].String(): `//h2[text()="History"]`,
			} {
				b.go_(hash, xpath)
				var over bool
				var unnamed int
				b.do("measure", chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth + 1`, &over),
					chromedp.Evaluate(`[...document.querySelectorAll("button, input, select, textarea, a")].filter((e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute("aria-label"))).length`, &unnamed))
				if over {
					t.Errorf("%s at %d pixels scrolls sideways", hash, width)
				}
				if unnamed > 0 {
					t.Errorf("%s has %d controls without a name", hash, unnamed)
				}
			}
		}
	}
	b.fine()
}

// What waits for an answer offers it, by the keyboard too; a bulk act shows its
// plan.
func TestAnswerAndBulk(t *testing.T) {
	y := newYard(t, web.Config{})
	y.mended.Store(true)
	b := open(t, y.url)
	b.go_("#/executions?status=waiting", `//table//a`)
	b.click(`(//table//a)[1]`)
	b.see(`//h2[text()="May it go out?"]`)
	b.do("answer by the keyboard", chromedp.Focus(`//button[text()="Yes"]`, chromedp.BySearch), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("dialog", chromedp.ByQuery),
		chromedp.KeyEvent("it is paid"), chromedp.KeyEvent(kb.Enter))
	b.see(`//h1//span[text()="completed"]`)
	b.go_("#/executions?status=failed", `//table//a`)
	b.click(`//button[contains(., "Plan")]`)
	b.see(`//dialog//li[contains(., "5 would end completed")]`)
	b.do("give a reason", chromedp.SendKeys(`//dialog//input[@name="reason"]`, "mended", chromedp.BySearch), chromedp.KeyEvent(kb.Enter))
	b.see(`//p[@role="alert" and contains(., "5")]`)
	for _, id := range y.failed {
		if x, err := y.e.Wait(t.Context(), id); err != nil || x.Status != store.StatusCompleted {
			t.Errorf("it is %v, %v", x, err)
		}
	}
	b.fine()
}

// What somebody may not do has no button.
func TestRefusedActsHaveNoButtons(t *testing.T) {
	y := newYard(t, web.Config{ReadOnly: true})
	b := open(t, y.url)
	b.go_("#/executions/"+y.failed[0].String(), `//h2[text()="History"]`)
	var buttons int
	b.do("count", chromedp.Evaluate(`document.querySelectorAll("main button").length`, &buttons))
	if buttons != 0 {
		t.Errorf("there are %d buttons", buttons)
	}
	b.fine()
}
