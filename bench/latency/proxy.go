package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// proxy passes requests on to the upstream, and each part of a reply when it arrives.
func proxy(upstream string) (http.Handler, error) {
	address, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(address) },
		Transport:     newClient().Transport,
		FlushInterval: -1,
	}, nil
}
