//go:build linux

package faults

var postgresFaults = []fault{}
