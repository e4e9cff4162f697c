package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The protocol of the subresource pods/portforward is SPDY within a WebSocket: a pair of streams for each connection to a
// port, one for data and one for the reason of a failure, paired by the number of a request. The kubelet's server names
// the headers.
const (
	forwardProtocol = constants.WebsocketsSPDYTunnelingPortForwardV1
	headerStream    = "streamType"
	headerPort      = "port"
	headerRequest   = "requestID"
	streamOfReasons = "error"
	streamOfData    = "data"
)

// Forward opens a stream to a TCP port on the loopback of a pod. Unlike Open it returns when the stream stands, as far as
// the kubelet knows; that nothing listens there comes out of Read. Nothing is tried again, and an API server that can't do
// it over a WebSocket (before Kubernetes 1.31) is an error: there is always Open.
func (c *Client) Forward(ctx context.Context, pod string, port uint16) (io.ReadWriteCloser, error) {
	f, err := c.forward(ctx, pod, port)
	if err != nil {
		return nil, fmt.Errorf("forward port %d of pod %s/%s: %w", port, c.namespace, pod, err)
	}
	return f, nil
}

func (c *Client) forward(ctx context.Context, pod string, port uint16) (*forwarded, error) {
	target := c.rest.Get().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	transport, holder, err := websocket.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	upgraded, err := websocket.Negotiate(transport, holder, request, forwardProtocol)
	if err != nil {
		return nil, err
	}
	// The entrypoint's protocol has pings of its own, so SPDY needs none.
	f := &forwarded{tunnel: portforward.NewTunnelingConnection("", upgraded), failed: make(chan struct{})}
	conn, err := spdy.NewClientConnection(f.tunnel)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	paired := make(chan error, 1)
	go func() { paired <- f.pair(conn, port) }()
	select {
	case err = <-paired:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pair makes the two streams, both at once: each takes a round trip.
func (f *forwarded) pair(conn httpstream.Connection, port uint16) error {
	header := func(kind string) http.Header {
		h := http.Header{}
		h.Set(headerStream, kind)
		h.Set(headerPort, strconv.Itoa(int(port)))
		h.Set(headerRequest, "0")
		return h
	}
	var data, reasons httpstream.Stream
	var dataErr, reasonsErr error
	var making sync.WaitGroup
	making.Go(func() { reasons, reasonsErr = conn.CreateStream(header(streamOfReasons)) })
	data, dataErr = conn.CreateStream(header(streamOfData))
	making.Wait()
	if err := errors.Join(dataErr, reasonsErr); err != nil {
		return err
	}
	f.data = data
	go func() {
		_ = reasons.Close() // of our half: it is only read
		_, _ = io.Copy(&f.reason, reasons)
		close(f.failed)
	}()
	return nil
}

// forwarded is a connection to a port.
type forwarded struct {
	tunnel *portforward.TunnelingConnection
	data   httpstream.Stream
	reason tail
	failed chan struct{} // closed when there is no more to reason
}

// reasonTime is how long the reason of an end may come after the end.
const reasonTime = 500 * time.Millisecond

func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.data.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	select {
	case <-f.failed:
	case <-time.After(reasonTime):
	}
	if reason := f.reason.text(); reason != "" {
		return 0, errors.New(reason)
	}
	return 0, io.EOF
}

// maxData is how much of what is written goes into one frame, which every relay on the way holds in memory.
const maxData = 32 << 10

// Write returns when the bytes are on their way to the API server.
func (f *forwarded) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		n, err := f.data.Write(p[:min(len(p), maxData)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// Close ends the connection and all that waits on it. It doesn't say good-bye to the streams: one whose other end takes
// nothing would make it wait.
func (f *forwarded) Close() error { return f.tunnel.Close() }
