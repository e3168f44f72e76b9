// Package outgoing makes the HTTP transports of the requests that the program sends, and
// explains what fails at a proxy. It reads the variables for proxies, as net/http does.
// internal/depcheck keeps every other package of the product from making transports.
package outgoing

import "net/http"

// FirstByte is the Range of a request that asks whether a blob is there.
const FirstByte = "bytes=0-0"

// maxHeader bounds the headers of one answer in bytes. net/http reads 10 MiB; the
// longest headers of registries are URLs of redirects, which have less than 16 KiB.
const maxHeader = 64 << 10

// Transport returns a copy of [http.DefaultTransport] that refuses answers with headers
// over 64 KiB, by HTTP/1 and by HTTP/2. A proxy that refuses a connection is a
// [ProxyError] with a hint, and a request fails if the variable for its proxy holds no
// URL. Copies of the transport keep all three. The transport has connections of
// its own, and the caller may change it before the first request.
func Transport() *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if ok {
		t = t.Clone()
	} else {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	if t.Proxy != nil {
		t.Proxy = checkVariable(t.Proxy)
	}
	t.OnProxyConnectResponse = connected
	t.MaxResponseHeaderBytes = maxHeader
	return t
}
