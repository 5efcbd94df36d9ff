package protocol

import "net/http"

// Versions returns the versions of HTTP that servers of agents answer: HTTP/1.1, and
// HTTP/2 without encryption for clients that begin with it (prior knowledge).
func Versions() *http.Protocols {
	v := new(http.Protocols)
	v.SetHTTP1(true)
	v.SetUnencryptedHTTP2(true)
	return v
}
