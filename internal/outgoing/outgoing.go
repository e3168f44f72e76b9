// Package outgoing creates the HTTP transports for the program's requests, and explains failures at proxies. It
// reads the proxy variables as net/http does. internal/depcheck ensures that no other package of the product
// creates transports.
package outgoing

import "net/http"

// FirstByte is the Range of a request that asks whether a blob exists.
const FirstByte = "bytes=0-0"

// maxHeader bounds the headers of one answer in bytes. net/http reads 10 MiB; the
// longest headers of registries are URLs of redirects, which have less than 16 KiB.
const maxHeader = 64 << 10

// Transport returns a copy of [http.DefaultTransport] that refuses answers with headers over 64 KiB, by HTTP/1
// and by HTTP/2. A proxy that refuses a connection is a [ProxyError] with a hint, and a request fails if the
// variable for its proxy holds no URL. Copies of the transport keep all three. The transport has its own
// connections, and the caller may change it before the first request.
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
