module github.com/utipc/utipc/bindings/go

go 1.24
