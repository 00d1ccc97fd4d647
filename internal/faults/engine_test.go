//go:build linux

package faults

var engineFaults = []fault{}
