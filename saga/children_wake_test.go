package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A slowChildren is a store on which the list of an execution's children takes
// its time: what it says is old when it arrives.
type slowChildren struct {
	*memory.Store
	slow time.Duration
}

func (s slowChildren) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	list, err := s.Store.Children(ctx, q)
	<-time.After(s.slow)
	return list, err
}

// A child that ends while its parent looks at its children is not missed: the
// parent goes on at once, forwards and backwards, and not at its next look in
// ten minutes.
func TestAChildThatEndsDuringTheLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := slowChildren{memory.New(), 5 * time.Second}
		e, err := saga.New(saga.Config{Store: s, SweepEvery: time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		const name saga.Name[order] = "part"
		take := func(_ context.Context, run *saga.Run[order]) error { // the second one ends while the end of the first is looked at
			<-time.After(map[string]time.Duration{"1": 2 * time.Second, "2": 4 * time.Second}[run.Resource.ID])
			return nil
		}
		_, err = saga.Register(e, saga.Definition[order]{Name: name, Steps: []saga.Step[order]{
			{Name: "a", Execute: take, Compensate: take},
		}})
		if err != nil {
			t.Fatal(err)
		}
		parents, err := saga.Register(e, saga.Definition[order]{Name: "whole", Steps: []saga.Step[order]{
			{Name: "parts", Children: &saga.Children[order]{Start: func(context.Context, *saga.Run[order]) ([]saga.Child, error) {
				return []saga.Child{name.Child("1", saga.Resource{ID: "1"}, order{}), name.Child("2", saga.Resource{ID: "2"}, order{})}, nil
			}}},
			{Name: "last", Wait: time.Hour, Execute: take},
		}})
		if err != nil {
			t.Fatal(err)
		}
		runEngine(t, e, func(ctx context.Context) {
			x, err := parents.Start(ctx, saga.Resource{Type: "order", ID: "7"}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			until := func(what string, done func(x *store.Execution) bool) {
				t.Helper()
				for {
					got, err := e.Get(ctx, x.ID)
					if err != nil {
						t.Fatal(err)
					}
					if done(got) {
						break
					}
					<-time.After(time.Second)
				}
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("%s took %v", what, took)
				}
				begun = time.Now()
			}
			until("all parts", func(x *store.Execution) bool { return x.Step == "last" })
			if _, err := e.Cancel(ctx, x.ID, anna, nil); err != nil {
				t.Fatal(err)
			}
			until("the way back", func(x *store.Execution) bool { return x.Status.Finished() })
		})
	})
}
