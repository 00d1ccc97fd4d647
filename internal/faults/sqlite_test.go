//go:build linux

package faults

var sqliteFaults = []fault{}
