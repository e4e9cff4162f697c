//go:build linux

package attach

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	// maxUnproven is how many connections may be without a proof at a time. Anything in the pod can connect; a driver that
	// finds no room comes by exec.
	maxUnproven = 8
	// proofTime is how long one may take to prove itself: the driver may be on another continent.
	proofTime = 5 * time.Second
	// penalty is how long the place of a connection without a proof stays taken, so that whoever tries again and again costs
	// PID 1 a few signatures a second and no more.
	penalty = time.Second
)

// door is where a driver comes in without an exec: a port on the loopback of the pod. It is opened when the pod is claimed
// with a key, and then for good; before that PID 1 listens to no network.
type door struct {
	mu   sync.Mutex
	open wire.Stream // empty until the port is there
}

// openDoor returns where this PID 1 listens for the driver, empty where it doesn't.
func (s *Server) openDoor() wire.Stream {
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	if s.door.open != (wire.Stream{}) {
		return s.door.open
	}
	key, err := s.Driver()
	if err != nil || key == nil {
		return wire.Stream{} // not claimed, or by a driver that doesn't want it; what else is wrong others say
	}
	if s.door.open, err = s.listen(key); err != nil {
		s.Log.Warn("drivers have to come by exec", "error", err)
	}
	return s.door.open
}

func (s *Server) listen(driver ed25519.PublicKey) (wire.Stream, error) {
	own, err := proof.NewKey()
	if err != nil {
		return wire.Stream{}, fmt.Errorf("make a key: %w", err)
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return wire.Stream{}, fmt.Errorf("listen for drivers: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return wire.Stream{}, errors.Join(fmt.Errorf("listen for drivers: %s is no TCP address", listener.Addr()), listener.Close())
	}
	go s.admitDrivers(listener, own, driver)
	return wire.Stream{Port: uint16(address.Port), Key: proof.Text(proof.Public(own))}, nil //nolint:gosec // a port has 16 bits
}

// admitDrivers accepts connections for as long as the process lives.
func (s *Server) admitDrivers(listener *net.TCPListener, own ed25519.PrivateKey, driver ed25519.PublicKey) {
	places := make(chan struct{}, maxUnproven)
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			s.Log.Warn("accept a connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		go func() {
			defer conn.Close()
			if prove(conn, own, driver) != nil {
				// Nobody is told: it is not the driver's, or the driver has left.
				_ = conn.Close()
				time.Sleep(penalty)
				<-places
				return
			}
			<-places
			s.obey(conn)
		}()
	}
}

// prove bounds the time of a proof.
func prove(conn *net.TCPConn, own ed25519.PrivateKey, driver ed25519.PublicKey) error {
	if err := conn.SetDeadline(time.Now().Add(proofTime)); err != nil {
		return err
	}
	if err := proof.PID1(conn, own, driver); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
