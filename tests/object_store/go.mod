module objectstore

go 1.24

require github.com/johannesboyne/gofakes3 v1.2.0

require github.com/ryszard/goskiplist v0.0.0-20150312221310-2dfbae5fcf46 // indirect
