// Package arch holds the project's import rules (DESIGN: folders and who may
// import whom) as a table, and the test that fails on a breach.
package arch
