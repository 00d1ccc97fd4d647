//go:build linux

package faults

import (
	"time"
)

var engineFaults = []fault{
	{name: "5000-stalled-rows-and-20-sweepers", group: "engine", core: true, run: stalledRows(5_000, 3*time.Minute)},
	{name: "100000-stalled-rows-and-20-sweepers", group: "engine", alone: true, run: stalledRows(100_000, time.Hour)},
	{name: "poison-in-the-queue", group: "engine", run: poisonInTheQueue},
}
