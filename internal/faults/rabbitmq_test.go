//go:build linux

package faults

var rabbitmqFaults = []fault{}
