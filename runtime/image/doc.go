// Package image decides whether and how a node gets an image: what a name means,
// which policy says to pull, which archive to import. Fetching and storing is an
// Engine's, which runtime/containerd gives.
//
// Invariants:
//   - One image is pulled once at a time, however many pods wait for it, and a
//     pull goes on as long as one of them does. Who brings other credentials pulls
//     for himself.
//   - A registry that is slow has only places of its own, and a pull that gets nothing, or
//     too little while others wait, ends.
//   - What came with a credential is given only to who has it, or to whom the registry
//     gives it (trust).
//   - A name under headway.local is never asked of a network.
//   - No error or progress holds a credential (R14): queries and user parts of
//     URLs are cut out.
package image
