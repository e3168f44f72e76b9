// Package outgoing creates the HTTP transports for the program's requests, and explains failures at proxies. It
// reads the proxy variables as net/http does. internal/depcheck ensures that no other package of the product
// creates transports.
package outgoing

import "net/http"

// FirstByte is the value of the Range header in a GET that checks whether a blob
// exists.
const FirstByte = "bytes=0-0"

// maxHeader is the maximum size in bytes of the headers of one answer. net/http
// reads 10 MiB; the longest headers of registries are URLs of redirects, which have
// less than 16 KiB.
const maxHeader = 64 << 10

// Transport returns a copy of [http.DefaultTransport] that refuses answers with
// headers over 64 KiB, over HTTP/1 and over HTTP/2. If a proxy refuses a
// connection, the error is a [ProxyError] with a hint. If the variable for a
// request's proxy holds no URL, the request fails. Copies of the transport behave
// in the same way. The transport has its own connections, and the caller may change
// it before the first request.
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
