// Package proof is how a driver and the PID 1 of a container show each other who they are, over a connection that anything
// in the pod could have made or could answer. Each end has an Ed25519 key of its own and the public part of the other's,
// and signs what the other end made up. So nothing that lies in a pod, and nothing that passes over such a connection, lets
// a job pose as its driver, nor as a PID 1 other than that of its own container. It refuses to know what a connection is
// for. It hides nothing: who can read the loopback of a pod can read what follows.
//
//	driver → PID 1   nonce
//	PID 1 → driver   nonce, signature
//	driver → PID 1   signature, and whatever comes next
//
// One round trip passes before the driver may say more. PID 1 signs for whoever asks: a signature says "I am here, and you
// asked just now", and no more.
package proof

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
)

// nonceSize is the length of what an end makes up, in bytes.
const nonceSize = 32

// What a signature begins with, so that one end's can't be used as the other's, nor for anything else. The last byte counts
// the versions of the proof.
const (
	driverSigns = "idlecount stream, driver \x01"
	pid1Signs   = "idlecount stream, PID 1  \x01"
)

// ErrOther is an other end that isn't who it should be.
var ErrOther = errors.New("the other end of the stream is somebody else")

// NewKey makes a key.
func NewKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(nil)
	return key, err
}

// Public is the part of a key that anybody may know.
func Public(key ed25519.PrivateKey) ed25519.PublicKey {
	return key.Public().(ed25519.PublicKey) //nolint:forcetypeassert // the package says so
}

// Text writes a public key as 64 hexadecimal digits.
func Text(key ed25519.PublicKey) string { return hex.EncodeToString(key) }

// Parse reads what Text wrote.
func Parse(text string) (ed25519.PublicKey, error) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("key %q: want %d hexadecimal digits", text, 2*ed25519.PublicKeySize)
	}
	return key, nil
}

// Driver proves to a PID 1 that the own key is the driver's, and that it is the PID 1 with the other key. It may send on the
// connection as soon as it returns; an error is ErrOther or the connection's.
func Driver(conn io.ReadWriter, own ed25519.PrivateKey, pid1 ed25519.PublicKey) error {
	mine := newNonce()
	if _, err := conn.Write(mine); err != nil {
		return fmt.Errorf("write a nonce: %w", err)
	}
	answer := make([]byte, nonceSize+ed25519.SignatureSize)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("read the proof of PID 1: %w", err)
	}
	theirs, signature := answer[:nonceSize], answer[nonceSize:]
	if !ed25519.Verify(pid1, message(pid1Signs, Public(own), mine, theirs), signature) {
		return ErrOther
	}
	if _, err := conn.Write(ed25519.Sign(own, message(driverSigns, pid1, mine, theirs))); err != nil {
		return fmt.Errorf("write the driver's proof: %w", err)
	}
	return nil
}

// PID1 proves to whoever asks that the own key is PID 1's, and returns nil where it is the driver with the other key.
func PID1(conn io.ReadWriter, own ed25519.PrivateKey, driver ed25519.PublicKey) error {
	theirs := make([]byte, nonceSize)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return fmt.Errorf("read the driver's nonce: %w", err)
	}
	mine := newNonce()
	signature := ed25519.Sign(own, message(pid1Signs, driver, theirs, mine))
	if _, err := conn.Write(slices.Concat(mine, signature)); err != nil {
		return fmt.Errorf("write the proof of PID 1: %w", err)
	}
	if _, err := io.ReadFull(conn, signature); err != nil {
		return fmt.Errorf("read the driver's proof: %w", err)
	}
	if !ed25519.Verify(driver, message(driverSigns, Public(own), theirs, mine), signature) {
		return ErrOther
	}
	return nil
}

// message is what an end signs: for whom, and what both ends made up for this connection.
func message(who string, to ed25519.PublicKey, driver, pid1 []byte) []byte {
	return slices.Concat([]byte(who), to, driver, pid1)
}

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails: the package says so
	return nonce
}
