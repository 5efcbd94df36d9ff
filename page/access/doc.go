// Package access decides who may do what over HTTP. It keeps the tokens that a person
// makes, and adds what a page in a browser needs besides them. It has one design for
// everything that is guarded. Today only the page uses it. A gateway or a worker that is
// to be guarded gives its clients tokens from the same file, presented as "Authorization:
// Bearer SECRET", and gets its own [Right].
//
// A token has a name, rights, perhaps an end, and the SHA-256 of a secret of 256 random
// bits that is shown once ([File.Create]). Since the secret is random and long, a fast
// hash is enough: it can't be guessed. The file is read again for each request. So a
// token that was revoked or has expired opens nothing any more, nor do the sessions that
// were begun with it.
//
// A browser presents its token once ([Guard.LogIn]) and gets a session: an HttpOnly,
// SameSite=Strict cookie whose value only this process knows. A request that changes
// anything also needs a form token ([Guard.CheckForm]), which is bound to the session,
// and the browser has to say that the page itself made the request (Sec-Fetch-Site,
// Origin). Sessions end with the process. Without a file of tokens there are no sessions.
// [Guard] then answers loopback only, checked by address and by host name, and form
// tokens belong to the process.
//
// The package does not encrypt the transport: over a network, the server that listens has
// to provide TLS.
package access
