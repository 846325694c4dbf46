//go:build race

package housetest

const raceEnabled = true
