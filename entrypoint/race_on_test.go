//go:build linux && race

package main

// raced says that the tests, and with them the program under test, are built with the race detector.
const raced = true
