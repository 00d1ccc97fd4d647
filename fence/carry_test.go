package fence_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func TestHeaderCarriesTheKeysOfACall(t *testing.T) {
	run := &saga.Run[int]{Call: saga.Call{Execution: uuid.New(), Step: "book", Direction: store.DirectionCompensate}}
	for _, effects := range [][]string{nil, {"hotel"}, {"a b:c", "ü"}} {
		h := http.Header{}
		fence.SetCall(h, run, effects...)
		key, executeKey, ok := fence.FromHeader(h)
		if !ok || key != run.Key(effects...) || executeKey != run.ExecuteKey(effects...) || key == executeKey {
			t.Errorf("%q: got %q, %q, %v", effects, key, executeKey, ok)
		}
	}
	call, _ := saga.CallFrom(t.Context())
	var _ fence.Call = call
}

// requests are headers as they may come, and the keys in them; with none, bad
// says whether they are wrong.
var requests = []struct {
	header          http.Header
	key, executeKey string
	bad             bool
}{
	{http.Header{"Idempotency-Key": {"u"}, "Leveret-Execute-Key": {"e"}}, "u", "e", false},
	{http.Header{"Idempotency-Key": {"e"}}, "e", "e", false},
	{http.Header{"Idempotency-Key": {`"u"`}, "Leveret-Execute-Key": {`"e\"\\"`}}, "u", `e"\`, false},
	{http.Header{}, "", "", false},
	{http.Header{"Leveret-Execute-Key": {"e"}}, "", "", true},
	{http.Header{"Idempotency-Key": {"a", "b"}}, "", "", true},
	{http.Header{"Idempotency-Key": {"a"}, "Leveret-Execute-Key": {"b", "b"}}, "", "", true},
	{http.Header{"Idempotency-Key": {""}}, "", "", true},
	{http.Header{"Idempotency-Key": {`""`}}, "", "", true},
	{http.Header{"Idempotency-Key": {"ä"}}, "", "", true},
	{http.Header{"Idempotency-Key": {strings.Repeat("a", 1025)}}, "", "", true},
	{http.Header{"Idempotency-Key": {"a"}, "Leveret-Execute-Key": {"\x01"}}, "", "", true},
}

func TestFromHeader(t *testing.T) {
	for _, r := range requests {
		key, executeKey, ok := fence.FromHeader(r.header)
		if key != r.key || executeKey != r.executeKey || ok != (r.key != "") {
			t.Errorf("%v: got %q, %q, %v", r.header, key, executeKey, ok)
		}
	}
}

func TestMiddlewarePutsKeysIntoTheContext(t *testing.T) {
	for _, r := range requests {
		var key, executeKey string
		var ok, served bool
		h := fence.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			key, executeKey, ok = fence.FromContext(r.Context())
			served = true
		}))
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		request.Header = r.header
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, request)
		if key != r.key || executeKey != r.executeKey || ok != (r.key != "") || served == r.bad {
			t.Errorf("%v: got %q, %q, %v, served: %v", r.header, key, executeKey, ok, served)
		}
		if want := map[bool]int{false: http.StatusOK, true: http.StatusBadRequest}[r.bad]; answer.Code != want {
			t.Errorf("%v: answered %d, want %d", r.header, answer.Code, want)
		}
	}
}

func TestTableCarriesKeys(t *testing.T) {
	sent := amqp091.Table{}
	fence.SetTable(sent, "u", "e")
	if err := sent.Validate(); err != nil {
		t.Error(err)
	}
	for _, row := range []struct {
		table           amqp091.Table
		key, executeKey string
	}{
		{sent, "u", "e"},
		{amqp091.Table{"idempotency-key": []byte("u"), "leveret-execute-key": []byte("e")}, "u", "e"},
		{amqp091.Table{"idempotency-key": "e"}, "e", "e"},
		{amqp091.Table{"leveret-execute-key": "e"}, "", ""},
		{amqp091.Table{"idempotency-key": int64(7)}, "", ""},
		{amqp091.Table{"idempotency-key": ""}, "", ""},
		{nil, "", ""},
	} {
		key, executeKey, ok := fence.FromTable(row.table)
		if key != row.key || executeKey != row.executeKey || ok != (row.key != "") {
			t.Errorf("%v: got %q, %q, %v", row.table, key, executeKey, ok)
		}
	}
}

func TestContextCarriesKeys(t *testing.T) {
	key, executeKey, ok := fence.FromContext(fence.NewContext(t.Context(), "u", "e"))
	if key != "u" || executeKey != "e" || !ok {
		t.Errorf("got %q, %q, %v", key, executeKey, ok)
	}
	if _, _, ok := fence.FromContext(t.Context()); ok {
		t.Error("an empty context has keys")
	}
}
