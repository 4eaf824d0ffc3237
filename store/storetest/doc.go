// Package storetest opens stores for tests, and holds the store's contract as a
// suite that runs on every backend: KV on the bytes, Store on the objects.
package storetest
