package storage

import (
	"context"
	"errors"
	"fmt"

	"headway.dev/headway/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

var emptyKind = schema.GroupVersionKind{}

// The messages that Kubernetes' clients know from a list that went on too long.
const (
	listTooOld   = "The resourceVersion for the provided list is too old."
	inconsistent = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
	tooOld       = "too old resource version: %d"
)

// failed turns an error of the store into one that a client understands.
func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("the store did not answer in time: "+err.Error(), 1)
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServiceUnavailable("the store is not available, a write may or may not have happened: " + err.Error())
	case errors.Is(err, store.ErrFull):
		return apierrors.NewServiceUnavailable("the store is full, delete objects or raise its quota: " + err.Error())
	case errors.Is(err, store.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return err
}

// compactedList is the answer to a page that can no longer be read at its
// revision: a token that goes on with the newest state instead.
func compactedList(continueKey, prefix string) error {
	token, err := kubestorage.EncodeContinue(continueKey, prefix, -1)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("make a continue token for %q: %w", continueKey, err))
	}
	e := apierrors.NewResourceExpired(inconsistent)
	e.ErrStatus.ListMeta.Continue = token
	return e
}
