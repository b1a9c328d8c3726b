module github.com/utipc/utipc/examples/go

go 1.24

require github.com/utipc/utipc/bindings/go v0.0.0

replace github.com/utipc/utipc/bindings/go => ../../bindings/go
