//go:build linux && !race

package main

const raced = false
