// Package session is the protocol between a server and a node's agent: the
// generated messages, the version number, and the small rules that both ends must
// agree on. The server's end lives in server, the agent's in runtime/agent.
package session

//go:generate protoc --go_out=../.. --go_opt=paths=source_relative --go-grpc_out=../.. --go-grpc_opt=paths=source_relative -I ../.. runtime/session/session.proto

// Version is the protocol's version; a server also speaks Version-1. What changed:
//
//	2: Services and EndpointSlices are assigned, with Mark, Routed and Drained; an
//	   agent of version 1 passes them over, and its pods are stopped without a wait.
//	3: Measure asks for Figures; an agent of version 2 is not asked, and autoscalers
//	   know nothing of its pods.
//	4: TokenRequest asks for a Token; claims and persistent volumes are assigned, and
//	   VolumeGone answers one that is to be discarded. An agent of version 3 is sent
//	   none of these: its pods run without tokens of their accounts until it is
//	   replaced, and those that have claims do not start.
const Version = 4
