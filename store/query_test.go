package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A field that IsZero forgets would let a query take a filter for none.
func TestIsZeroKnowsEveryField(t *testing.T) {
	about := map[string]bool{"At": true, "StalledAfter": true, "OverdueAfter": true} // what the others mean
	for i := range reflect.TypeFor[store.Filter]().NumField() {
		field := reflect.TypeFor[store.Filter]().Field(i)
		var f store.Filter
		set := reflect.ValueOf(&f).Elem().Field(i)
		switch v := set.Interface().(type) {
		case string:
			set.SetString("x")
		case bool:
			set.SetBool(true)
		case time.Time:
			set.Set(reflect.ValueOf(time.Unix(1, 0)))
		case time.Duration:
			set.SetInt(1)
		case store.Range:
			set.Set(reflect.ValueOf(store.Range{To: time.Unix(1, 0)}))
		case store.Resource:
			set.Set(reflect.ValueOf(store.Resource{ID: "x"}))
		case map[string]string:
			set.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case []uuid.UUID:
			f.IDs, f.Parents = nil, nil
			set.Set(reflect.ValueOf([]uuid.UUID{{1}}))
		default:
			switch set.Kind() {
			case reflect.Pointer:
				set.Set(reflect.New(set.Type().Elem()))
			case reflect.Slice:
				set.Set(reflect.MakeSlice(set.Type(), 1, 1))
			default:
				t.Fatalf("a field of type %T", v)
			}
		}
		if f.IsZero() != about[field.Name] {
			t.Errorf("with %s alone IsZero is %t", field.Name, f.IsZero())
		}
	}
	if !new(store.Filter).IsZero() {
		t.Error("the zero Filter is not zero")
	}
}
