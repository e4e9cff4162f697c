// Package stream follows a script in a pod to its end whatever happens to the connection: it hands the script over, passes
// the output on byte for byte, and where a connection breaks it makes another one and goes on at the byte it has. What a
// connection is made of it doesn't know (see Opener); it speaks the frames of entrypoint/wire over it.
package stream
