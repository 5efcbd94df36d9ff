// Package container asks podman what it has and removes what is left over.
//
// [Find] says whether podman on this machine can run the containers of agents: as root,
// with an OCI runtime, control groups and a filter of system calls. A [Podman] says which
// image a name means here, and removes containers of attempts whose worker has died. Each
// container of an attempt has labels with the attempt's address, its home and its machine
// ([Labels]).
//
// This package starts no container: package agent/sandbox does, with the arguments that
// isolate an agent. It fetches and builds no image either, since that takes long and needs
// a registry: who runs a worker puts the images of agents there. The containers of tasks in
// Harbor's format are not its either: they may be docker's, live on between commands, and
// isolate nothing, so package tasks/harbor has its own.
package container
