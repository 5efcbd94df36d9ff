// Package container asks podman or docker what they have and removes what is left over.
//
// An [Engine] is one of both programs on this machine. It says which image a name means
// here, and removes containers of attempts whose worker has died. Each container of an
// attempt has labels with the attempt's address, its home and its machine ([Labels]).
//
// This package starts no container: package agent/sandbox does, with the arguments that
// isolate an agent. It fetches and builds no image either, since that takes long and needs
// a registry: who runs a worker puts the images of agents there.
package container
