package store

type seen struct{}
