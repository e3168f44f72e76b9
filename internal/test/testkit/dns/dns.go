// Package dns provides a name server that resolves every name to 127.0.0.1.
package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// replaced means that this process asks a name server of its own, and not the system's.
var replaced atomic.Bool

// The resolver is replaced once, before any test runs.
func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !replaced.Load() {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		client, server := net.Pipe()
		go answer(server)
		return client, nil
	}}
}

// Default makes the name server answer all lookups of this process, from now on. No test ends that, because a transport can
// still look up a name after the request and its test have ended, and the resolver gives its answer to every other lookup
// of the name at the same time.
func Default() { replaced.Store(true) }

// For starts a name server on TCP, and returns its address. The name server runs until the test ends.
func For(tb testkit.TB) (address string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("name server: %v", err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return l.Addr().String()
}

func answer(conn net.Conn) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length[:]))
		var m dnsmessage.Message
		if _, err := io.ReadFull(conn, question); err != nil || m.Unpack(question) != nil || len(m.Questions) != 1 {
			return
		}
		q := m.Questions[0]
		m = dnsmessage.Message{
			Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
			Questions: m.Questions,
		}
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		data, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(data))), data...)); err != nil {
			return
		}
	}
}
