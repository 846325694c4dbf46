//go:build !race

package housetest

const raceEnabled = false
