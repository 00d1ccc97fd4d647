package web

// FilterParameters are those of the list.
var FilterParameters = filterParameters
