package saga

import (
	"testing"
	"time"
)

func TestTimetables(t *testing.T) {
	for _, c := range []struct {
		name, cron, zone string
		every            time.Duration
		from             string
		want             []string // of the zone
	}{
		{name: "every", every: 90 * time.Minute, from: "2030-03-01T00:10:00Z", want: []string{"01:30 UTC", "03:00 UTC", "04:30 UTC"}},
		{name: "a cron", cron: "30 9 * * 1-5", zone: "Europe/Berlin", from: "2030-03-01T07:00:00Z", want: []string{"Mar 1 09:30 CET", "Mar 4 09:30 CET", "Mar 5 09:30 CET"}},
		{name: "to the minute", cron: "30 9 * * *", from: "2030-03-01T09:30:00Z", want: []string{"Mar 2 09:30 UTC"}},
		{name: "a descriptor", cron: "@monthly", from: "2030-03-01T00:00:00Z", want: []string{"Apr 1 00:00 UTC"}},

		// Spring: Berlin jumps from 02:00 to 03:00 on March 31, 2030.
		{name: "a time that is left out", cron: "30 2 * * *", zone: "Europe/Berlin", from: "2030-03-29T12:00:00Z",
			want: []string{"Mar 30 02:30 CET", "Mar 31 03:00 CEST", "Apr 1 02:30 CEST"}},
		{name: "the end of what is left out", cron: "0 3 * * *", zone: "Europe/Berlin", from: "2030-03-30T12:00:00Z",
			want: []string{"Mar 31 03:00 CEST", "Apr 1 03:00 CEST"}},
		{name: "each half hour over what is left out", cron: "*/30 * * * *", zone: "Europe/Berlin", from: "2030-03-31T00:15:00Z",
			want: []string{"Mar 31 01:30 CET", "Mar 31 03:00 CEST", "Mar 31 03:30 CEST"}},
		// Autumn: back from 03:00 to 02:00 on October 27, 2030.
		{name: "a time that comes twice", cron: "30 2 * * *", zone: "Europe/Berlin", from: "2030-10-26T12:00:00Z",
			want: []string{"Oct 27 02:30 CEST", "Oct 28 02:30 CET"}},
		{name: "each half hour over what comes twice", cron: "*/30 * * * *", zone: "Europe/Berlin", from: "2030-10-27T00:15:00Z",
			want: []string{"Oct 27 02:30 CEST", "Oct 27 02:00 CET", "Oct 27 02:30 CET", "Oct 27 03:00 CET"}},
		{name: "New York", cron: "30 1 * * *", zone: "America/New_York", from: "2030-11-02T12:00:00Z",
			want: []string{"Nov 3 01:30 EDT", "Nov 4 01:30 EST"}},
		{name: "Lord Howe jumps by half an hour", cron: "15 2 * * *", zone: "Australia/Lord_Howe", from: "2030-10-04T20:00:00Z",
			want: []string{"Oct 6 02:30 +11", "Oct 7 02:15 +11"}},
		{name: "Lord Howe goes back by half an hour", cron: "45 1 * * *", zone: "Australia/Lord_Howe", from: "2030-04-05T20:00:00Z",
			want: []string{"Apr 7 01:45 +11", "Apr 8 01:45 +1030"}},
		{name: "Kathmandu", cron: "0 9 * * *", zone: "Asia/Kathmandu", from: "2030-03-01T03:00:00Z", want: []string{"Mar 1 09:00 +0545"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := parseTimetable(c.cron, c.every, c.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			from := at
			for _, want := range c.want {
				at = table.after(at)
				layout := "Jan 2 15:04 MST"
				if len(want) <= len("15:04 MST") {
					layout = "15:04 MST"
				}
				if got := at.In(table.zone).Format(layout); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			if last := table.last(from, at); !last.Equal(at) {
				t.Errorf("the last one until %v is %v", at, last)
			}
			if last := table.last(from, from); !last.IsZero() {
				t.Errorf("in no time there is %v", last)
			}
		})
	}
	for _, bad := range []struct {
		cron, zone string
		every      time.Duration
	}{
		{}, {cron: "* * * * *", every: time.Hour}, {every: time.Millisecond}, {every: -time.Hour}, {cron: "* * * *"}, {cron: "0 0 31 2 *"},
		{cron: "61 * * * *"}, {cron: "TZ=UTC * * * * *"}, {cron: "@every 1h"}, {cron: "@daily", zone: "Mars/Olympus"}, {cron: "@daily", zone: "Local"},
	} {
		if _, err := parseTimetable(bad.cron, bad.every, bad.zone); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// The last one of very many is found without going through all of them.
func TestTheLastOfMany(t *testing.T) {
	table, err := parseTimetable("", time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2040, 1, 1, 0, 0, 0, 5, time.UTC)
	if got := table.last(now.AddDate(-10, 0, 0), now); !got.Equal(now.Truncate(time.Second)) {
		t.Errorf("got %v", got)
	}
}
