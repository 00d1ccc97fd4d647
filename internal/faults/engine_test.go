//go:build linux

package faults

var engineFaults = []fault{
	{name: "5000-stalled-rows-and-20-sweepers", group: "engine", core: true, run: stalledRows(5_000)},
	{name: "100000-stalled-rows-and-20-sweepers", group: "engine", alone: true, run: stalledRows(100_000)},
	{name: "poison-in-the-queue", group: "engine", run: poisonInTheQueue},
}
