// Package chaos lives through hard times with pools on a real API server: managers are killed at random while their watches
// lag, and jobs claim at random. A checker sees each event of each pod by a watch of its own and says what must not be.
//
// It knows the manager as users do: the program, its configuration file and what it does to pods. Nothing here looks inside.
package chaos
