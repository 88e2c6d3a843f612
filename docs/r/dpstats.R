# Read a release of dpstats in R: shares of conditions and of cells of tables, with noise-aware
# intervals. Needs the package jsonlite and nothing else.
#
#   source("dpstats.R")
#   release <- dps_open("survey-2026.zip")
#   dps_infer(release, "smoking")
#   dps_proportion(release, "smoker == 'yes' and age >= 65")
#   dps_table(release, c("smoker", "region"))
#
# The results are those of the Python package: estimates to 1e-8, ends of intervals to 1e-6 of
# their width. Shares within a group (given=, or of columns whose missing cells have a level of
# their own), all other analyses, certified intervals, releases in which a person may have several
# rows, and those of surveys with weights are refused. `release$rules` are the rules between columns, NULL without any; no interval
# uses them.

# ---- The archive -----------------------------------------------------------------------------

dps_open <- function(path) {
  used <- c("release.json", "measurements.json", "answers.csv")
  found <- tryCatch(suppressWarnings(utils::unzip(path, list = TRUE)), error = function(e) NULL)
  if (!setequal(found$Name, c(used, "candidates.csv", "rows.csv", "digests.json")) ||
      anyDuplicated(found$Name) || sum(as.numeric(found$Length)) > 2^31)
    stop(path, " is not a release of dpstats, with its members and no others", call. = FALSE)
  folder <- tempfile("dpstats")
  on.exit(unlink(folder, recursive = TRUE))
  utils::unzip(path, files = used, exdir = folder)
  read <- function(name)
    jsonlite::fromJSON(file.path(folder, name), simplifyVector = FALSE)
  document <- read("measurements.json")
  if (!identical(document$version, 3L))
    stop("format version ", document$version, "; this reader knows version 3", call. = FALSE)
  if (!is.null(document$design))
    stop(path, " is of a survey whose rows have weights, and this reader takes rows as equal and ",
         "independent; infer it with the Python package", call. = FALSE)
  if ((document$unit == "replace") == is.null(document$rows))
    stop(path, " states the number of rows where it is private, or not where it is public",
         call. = FALSE)
  answers <- utils::read.csv(file.path(folder, "answers.csv"), encoding = "UTF-8",
                             colClasses = c("integer", "integer", "character", "numeric", "numeric"))
  columns <- lapply(document$schema, column_of)
  names(columns) <- vapply(columns, `[[`, "", "name")
  release <- structure(list(
    columns = columns, analyses = document$analyses, budget = document$budget,
    gaussian = document$budget$kind != "pure", n = document$rows,
    rows_per_person = document$rows_per_person, rules = document$rules, notes = read("release.json")$notes,
    kept = new.env()
  ), class = "dps_release")
  release$sources <- sources_of(release, document$blocks, answers)
  release$size <- sum(vapply(release$sources, function(one) length(one$sums), 0L))
  release$sums <- unlist(lapply(release$sources, `[[`, "sums"))
  release$uniforms <- unlist(lapply(release$sources, `[[`, "uniforms"))
  release$scales <- unlist(lapply(release$sources, function(one) rep(one$scale, length(one$sums))))
  release$variances <- unlist(lapply(release$sources, function(one) rep(one$variance, length(one$sums))))
  release
}

print.dps_release <- function(x, ...) {
  cat("dpstats release:", paste(names(x$analyses), collapse = ", "), "\n")
  cat("budget:", paste(names(x$budget), unlist(x$budget), sep = " = ", collapse = ", "), "\n")
  invisible(x)
}

# A column of the schema: its name, the labels of its levels or bins, and what conditions may say.
column_of <- function(plain) {
  allow <- isTRUE(plain$allow_missing)
  column <- list(name = plain$name, kind = plain$kind, allow_missing = allow)
  if (plain$kind == "boolean") {
    column$labels <- c("False", "True")
    column$levels <- list(FALSE, TRUE)
  } else if (plain$kind == "category") {
    named <- !is.null(names(plain$levels))
    column$levels <- if (named) as.list(names(plain$levels)) else plain$levels
    column$labels <- vapply(column$levels, label_of, "")
  } else {
    column$dates <- is.character(plain$low)
    column$edges <- vapply(plain$edges, day_or_number, 0)
    column$even_edges <- isTRUE(plain$even_edges)
    column$closed <- if (is.null(plain$closed)) "left" else plain$closed
    column$values <- vapply(plain$values, as.numeric, 0)
    if (length(column$values) && !length(column$edges)) {
      column$labels <- vapply(plain$values, label_of, "")
    } else {
      cuts <- vapply(c(list(if (is.null(plain$low)) plain$values[[1]] else plain$low), plain$edges,
                       list(if (is.null(plain$high)) plain$values[[length(plain$values)]] else plain$high)),
                     label_of, "")
      last <- length(cuts) - 1
      left <- if (column$closed == "left") "[" else "("
      right <- if (column$closed == "left") ")" else "]"
      column$labels <- paste0(c("[", rep(left, last - 1)), cuts[1:last], ", ", cuts[-1],
                              c(rep(right, last - 1), "]"))
    }
  }
  column$value_bins <- length(column$labels)
  if (allow) column$labels <- c(column$labels, "(missing)")
  column$bins <- length(column$labels)
  column
}

label_of <- function(value) {
  if (is.logical(value)) return(if (value) "True" else "False")
  if (is.character(value)) return(value)
  format(value, digits = 15, scientific = FALSE, trim = TRUE)
}

day_or_number <- function(value)
  if (is.character(value)) as.numeric(as.Date(value)) else as.numeric(value)

fraction <- function(text) {
  parts <- as.numeric(strsplit(text, "/", fixed = TRUE)[[1]])
  if (length(parts) == 2) parts[1] / parts[2] else parts[1]
}

# Measured blocks that answers come from: tables, residuals of tables, conditions, sets of rows,
# the row count. Sets of rows are a table over a column of their own, whose levels they are.
sources_of <- function(release, blocks, answers) {
  found <- list()
  for (i in seq_along(blocks)) {
    plain <- blocks[[i]]
    if (!plain$role %in% c("family", "count") ||
        !plain$kind %in% c("table", "residual", "condition", "partition") ||
        isTRUE(plain$rotated)) next
    sets <- plain$sets
    names <- as.character(unlist(if (is.null(sets)) plain$columns else sets[[1]]$columns))
    shape <- vapply(names, function(name) release$columns[[name]]$bins, 0L)
    own <- answers[answers$block == i - 1, ]
    bound <- if (plain$kind == "residual") prod(shape - 1) else 1
    scale <- fraction(plain$multiplier)
    scale <- if (release$gaussian) sqrt(scale) * bound else scale * bound
    block <- list(kind = plain$kind, columns = names, shape = unname(shape), scale = scale,
                  sums = own$noisy_sum, uniforms = own$uniform)
    block$variance <- max(law_variance(lattice(release$gaussian, scale, 1)), 1e-9)
    if (plain$kind == "condition") {
      block$mask <- logical(prod(shape))
      block$mask[unlist(plain$cells) + 1] <- TRUE
    }
    if (plain$kind == "partition") {
      block$of <- list(columns = names, shape = unname(shape))
      block$sets <- lapply(sets, function(set) replace(logical(prod(shape)), unlist(set$cells) + 1, TRUE))
      block$columns <- paste("sets of block", i)
      block$shape <- length(sets)
    }
    found[[length(found) + 1]] <- block
  }
  start <- 0
  for (i in seq_along(found)) {
    found[[i]]$start <- start
    start <- start + length(found[[i]]$sums)
  }
  found
}

# ---- Results ---------------------------------------------------------------------------------

# A planned proportion or table of marginals, by name.
dps_infer <- function(release, name, alpha = 0.05) {
  plain <- release$analyses[[name]]
  if (is.null(plain)) stop("there is no analysis '", name, "'; analyses: ",
                           paste(names(release$analyses), collapse = ", "), call. = FALSE)
  if (plain$kind == "proportion" && is.null(plain$given))
    return(dps_proportion(release, plain$condition, alpha))
  if (plain$kind == "marginals" && !identical(plain$form, "monomials")) {
    columns <- in_order(release, unlist(plain$columns))
    degree <- if (is.null(plain$degree)) 2 else plain$degree
    tables <- utils::combn(columns, degree, simplify = FALSE)
    return(do.call(rbind, lapply(tables, function(one) {
      found <- dps_table(release, one, alpha)
      labels <- do.call(paste, c(lapply(one, function(c) paste0(c, "=", found[[c]])), sep = ", "))
      data.frame(term = labels, found[c("estimate", "conf_low", "conf_high")])
    })))
  }
  stop("this reader infers proportions of all rows and tables; infer '", name,
       "' with the Python package", call. = FALSE)
}

# The share of rows with a condition.
dps_proportion <- function(release, condition, alpha = 0.05) {
  read <- read_condition(release, condition)
  hidden <- Filter(function(name) release$columns[[name]]$allow_missing, read$columns)
  if (length(hidden) && !grepl("(missing)", condition, fixed = TRUE))
    stop("this is a share of the rows that have a value of ", hidden[1],
         "; infer it with the Python package", call. = FALSE)
  wanted <- list(columns = read$columns, functions = matrix(as.numeric(read$mask), 1),
                 mask = read$mask)
  data.frame(term = condition, estimates(release, wanted, alpha))
}

# The share of rows in every cell of a table.
dps_table <- function(release, columns, alpha = 0.05) {
  columns <- in_order(release, columns)
  shape <- shape_of(release, columns)
  wanted <- list(columns = columns, functions = NULL, size = prod(shape))
  labels <- lapply(columns, function(name) release$columns[[name]]$labels)
  levels <- rev(expand.grid(rev(labels), stringsAsFactors = FALSE))
  names(levels) <- columns
  data.frame(levels, estimates(release, wanted, alpha), check.names = FALSE)
}

estimates <- function(release, wanted, alpha) {
  if (!is.null(release$rows_per_person) && release$rows_per_person > 1)
    stop("a person may have ", release$rows_per_person, " rows of this table, and this reader takes ",
         "rows as independent; infer it with the Python package", call. = FALSE)
  if (!(alpha >= 1e-9 && alpha <= 0.5)) stop("alpha must be in [1e-9, 1/2]", call. = FALSE)
  found <- best(release, wanted)
  rows <- row_count(release)
  share <- found$sums / rows$value  # unbiased: small ones may be below 0, and cells add up to 1
  ends <- if (rows$public) intervals_public(release, found, rows$value, alpha)
          else intervals_measured(release, found, rows, alpha)
  data.frame(estimate = share, conf_low = ends$low, conf_high = ends$high)
}

in_order <- function(release, columns) {
  unknown <- setdiff(columns, names(release$columns))
  if (length(unknown)) stop("there is no column '", unknown[1], "'", call. = FALSE)
  names(release$columns)[names(release$columns) %in% columns]
}

shape_of <- function(release, columns)
  unname(vapply(columns, function(name) release$columns[[name]]$bins, 0L))

# ---- Conditions ------------------------------------------------------------------------------

# Columns in the order of the schema and the set of cells (in C order) of a condition.
read_condition <- function(release, text) {
  tokens <- tokens_of(text)
  at <- 1
  used <- unique(vapply(Filter(function(t) t$type == "name", tokens), `[[`, "", "text"))
  columns <- in_order(release, used)
  shape <- shape_of(release, columns)
  cells <- arrayInd(seq_len(prod(shape)), rev(shape))
  cells <- cells[, rev(seq_along(shape)), drop = FALSE]  # C order
  refuse <- function() stop("cannot read the condition ", text, call. = FALSE)
  peek <- function(what) at <= length(tokens) && tokens[[at]]$type == "sign" && tokens[[at]]$text == what
  take <- function(what) { if (!peek(what)) refuse(); at <<- at + 1 }
  constant <- function() {
    sign <- 1
    if (peek("-")) { at <<- at + 1; sign <- -1 }
    if (at > length(tokens)) refuse()
    one <- tokens[[at]]
    at <<- at + 1
    if (one$type == "text" && sign == 1) return(one$text)
    if (one$type == "number") return(sign * as.numeric(one$text))
    if (one$type == "sign" && one$text %in% c("True", "False") && sign == 1) return(one$text == "True")
    refuse()
  }
  comparison <- function() {
    if (at > length(tokens) || tokens[[at]]$type != "name") refuse()
    column <- release$columns[[tokens[[at]]$text]]
    axis <- match(column$name, columns)
    at <<- at + 1
    negated <- FALSE
    if (peek("not")) { at <<- at + 1; negated <- TRUE; if (!peek("in")) refuse() }
    if (peek("in")) {
      at <<- at + 1
      closing <- if (peek("[")) "]" else ")"
      if (closing == ")") take("(") else take("[")
      bins <- bins_where(column, "==", constant())
      while (peek(",")) { at <<- at + 1; if (!peek(closing)) bins <- c(bins, bins_where(column, "==", constant())) }
      take(closing)
      held <- cells[, axis] %in% bins
      return(if (negated) !held else held)
    }
    if (at <= length(tokens) && tokens[[at]]$text %in% c("==", "!=", "<", "<=", ">", ">=") &&
        tokens[[at]]$type == "sign") {
      sign <- tokens[[at]]$text
      at <<- at + 1
      return(cells[, axis] %in% bins_where(column, sign, constant()))
    }
    if (column$kind != "boolean") refuse()
    cells[, axis] == 2
  }
  factor_of <- function() {
    if (peek("not")) { at <<- at + 1; return(!factor_of()) }
    if (peek("(")) { at <<- at + 1; found <- either(); take(")"); return(found) }
    comparison()
  }
  both <- function() { found <- factor_of(); while (peek("and")) { at <<- at + 1; found <- found & factor_of() }; found }
  either <- function() { found <- both(); while (peek("or")) { at <<- at + 1; found <- found | both() }; found }
  mask <- either()
  if (at <= length(tokens)) refuse()
  # leave out columns that the condition does not depend on
  for (name in rev(columns)) {
    shape <- shape_of(release, columns)
    axis <- match(name, columns)
    array <- c_array(mask, shape)
    first <- asub(array, axis, 1)
    same <- all(vapply(seq_len(shape[axis]), function(i) identical(asub(array, axis, i), first), NA))
    if (same) { mask <- first; columns <- columns[-axis] }
  }
  if (!length(columns)) stop("the condition is always true or always false", call. = FALSE)
  list(columns = columns, mask = mask)
}

# Values (in C order) of an array where one axis has an index.
asub <- function(array, axis, index) {
  k <- length(dim(array))
  order <- c(axis, setdiff(seq_len(k), axis))
  moved <- aperm(array, order)
  shape <- dim(array)[-axis]
  part <- matrix(moved, nrow = dim(array)[axis])[index, ]
  if (!length(shape)) return(part)
  flat(array(part, shape))
}

tokens_of <- function(text) {
  pattern <- paste0("^\\s*(?:(`[^`]+`)|('(?:[^'\\\\]|\\\\.)*'|\"(?:[^\"\\\\]|\\\\.)*\")|",
                    "([0-9.]+(?:[eE][+-]?[0-9]+)?)|(==|!=|<=|>=|[<>()\\[\\],&|~+-])|([^\\W\\d]\\w*))")
  found <- list()
  while (nchar(trimws(text))) {
    match <- regmatches(text, regexec(pattern, text, perl = TRUE))[[1]]
    if (!length(match)) stop("cannot read the condition at: ", text, call. = FALSE)
    text <- substring(text, nchar(match[1]) + 1)
    kind <- which(nzchar(match[-1]))[1]
    token <- match[kind + 1]
    found[[length(found) + 1]] <- switch(kind,
      list(type = "name", text = substr(token, 2, nchar(token) - 1)),
      list(type = "text", text = gsub("\\\\(.)", "\\1", substr(token, 2, nchar(token) - 1))),
      list(type = "number", text = token),
      list(type = "sign", text = switch(token, `&` = "and", `|` = "or", `~` = "not", token)),
      list(type = if (token %in% c("and", "or", "not", "in", "True", "False")) "sign" else "name", text = token))
  }
  found
}

# Bins (from 1) for which a comparison of a column holds.
bins_where <- function(column, sign, value) {
  every <- seq_len(column$bins)
  refuse <- function() stop("'", column$name, "' cannot be compared with ", value, " by ", sign,
                            "; numbers compare at declared edges or values", call. = FALSE)
  if (column$allow_missing && identical(value, "(missing)"))
    return(if (sign == "==") column$bins else if (sign == "!=") every[-column$bins] else refuse())
  if (column$kind != "number") {
    alike <- function(level) is.character(level) == is.character(value) && level == value
    at <- which(vapply(column$levels, alike, NA))
    if (!sign %in% c("==", "!="))
      stop("'", column$name, "' has levels, which compare by == and != only", call. = FALSE)
    if (!length(at)) {
      known <- c(unlist(column$levels), if (column$allow_missing) "(missing)")
      stop("'", value, "' is not a level of '", column$name, "'; its levels: ",
           paste0("'", known, "'", collapse = ", "), call. = FALSE)
    }
    return(if (sign == "==") at else every[-at])
  }
  if (column$dates && is.character(value)) value <- as.numeric(as.Date(value))
  if (!is.numeric(value)) refuse()
  if (length(column$values) && !length(column$edges)) {
    if (!value %in% column$values) refuse()
    holds <- which(do.call(sign, list(column$values, value)))
    return(if (column$allow_missing && sign == "!=") c(holds, column$bins) else holds)
  }
  if (isTRUE(column$even_edges)) refuse()
  at <- match(value, column$edges)
  signs <- if (column$closed == "left") c("<", ">=") else c("<=", ">")
  if (is.na(at) || !sign %in% signs) refuse()
  if (sign == signs[1]) seq_len(at) else seq(at + 1, column$value_bins)
}

# ---- Answers: sums of measured functions, and the best combination of overlapping tables ------

# An array in the order of its columns from values in C order, and back.
c_array <- function(values, shape) {
  if (length(shape) < 2) return(array(values, length(values)))
  aperm(array(values, rev(shape)), rev(seq_along(shape)))
}
flat <- function(array) {
  k <- length(dim(array))
  if (k < 2) as.vector(array) else as.vector(aperm(array, k:1))
}

# Estimates of functions: sums, uniforms, and for each the weights on the measured noises and law.
best <- function(release, wanted) {
  shape <- shape_of(release, wanted$columns)
  table <- is.null(wanted$functions)
  count <- if (table) wanted$size else 1
  single <- single_of(release, wanted, shape)
  combined <- combined_of(release, wanted, shape, count)
  found <- single
  if (!is.null(combined) && any(combined$variances < single$variances * (1 - 1e-9))) {
    found <- combined
    found$uniforms <- ifelse(is.infinite(single$variances), combined$uniforms, single$uniforms)
  }
  if (any(is.infinite(found$variances)))
    stop("this release cannot answer it: the columns ", paste(wanted$columns, collapse = ", "),
         " were not measured together", call. = FALSE)
  found
}

# Every function as a plain sum of cells of one measured block.
single_of <- function(release, wanted, shape) {
  table <- is.null(wanted$functions)
  count <- if (table) wanted$size else 1
  found <- list(sums = numeric(count), variances = rep(Inf, count), uniforms = numeric(count),
                keys = vector("list", count), row = NULL)
  members <- vector("list", count)
  signs <- rep(1, count)
  for (block in release$sources) {
    held_by <- if (is.null(block$of)) block$columns else block$of$columns
    if (block$kind == "residual" || !all(wanted$columns %in% held_by)) next
    sign <- 1
    if (block$kind == "partition") {
      if (table && length(wanted$columns)) next
      inside <- if (table) rep(TRUE, block$shape) else sets_inside(block, wanted, shape)
      if (is.null(inside)) next
      cell <- ifelse(inside, 1, NA)
    } else if (block$kind == "table") {
      cell <- margin_index(block, wanted$columns, shape)
      if (!table) {
        held <- wanted$mask[cell]
        if (2 * sum(held) > length(held) && !is.null(release$n)) { sign <- -1; held <- !held }
        cell <- ifelse(held, 1, NA)
      }
    } else {
      if (table || !identical(block$columns, wanted$columns)) next
      if (identical(block$mask, as.logical(wanted$mask))) cell <- 1
      else if (!is.null(release$n) && !any(block$mask == wanted$mask)) { cell <- 1; sign <- -1 }
      else next
    }
    groups <- split(seq_along(cell), factor(cell, levels = seq_len(count)))
    for (f in seq_len(count)) {
      member <- groups[[f]]
      variance <- block$variance * length(member)
      if (!length(member) || variance >= found$variances[f]) next
      found$variances[f] <- variance
      found$sums[f] <- sign * sum(block$sums[member]) + (if (sign < 0) release$n else 0)
      uniform <- sign * sum(block$uniforms[member])
      found$uniforms[f] <- uniform - round(uniform)
      found$keys[[f]] <- data.frame(weight = 1, scale = block$scale, count = length(member))
      members[[f]] <- block$start + member
      signs[f] <- sign
    }
  }
  found$row <- function(f) {
    row <- numeric(release$size)
    row[members[[f]]] <- signs[f]
    row
  }
  found
}

# Cell of a table over some columns (in C order, from 1) that each cell of a block falls in.
margin_index <- function(block, columns, shape) {
  if (!length(block$shape)) return(1)
  cells <- arrayInd(seq_len(prod(block$shape)), rev(block$shape))
  cells <- cells[, rev(seq_along(block$shape)), drop = FALSE]
  index <- rep(0, nrow(cells))
  for (i in seq_along(columns))
    index <- index * shape[i] + cells[, match(columns[i], block$columns)] - 1
  index + 1
}

# Which sets of rows a condition is the union of; NULL if it is no union of some.
sets_inside <- function(block, wanted, shape) {
  held <- wanted$mask[margin_index(block$of, wanted$columns, shape)]
  inside <- vapply(block$sets, function(set) any(set) && all(held[set]), TRUE)
  if (!any(inside) || !identical(Reduce(`|`, block$sets[inside]), held)) return(NULL)
  inside
}

combined_of <- function(release, wanted, shape, count) {
  tables <- Filter(function(block) block$kind != "condition", release$sources)
  if (!length(tables)) return(NULL)
  if (!is.null(wanted$functions)) for (block in tables) {
    if (block$kind != "partition" || !all(wanted$columns %in% block$of$columns)) next
    inside <- sets_inside(block, wanted, shape)
    if (is.null(inside)) next
    wanted <- list(columns = block$columns, functions = matrix(as.numeric(inside), 1))
    shape <- block$shape
    break
  }
  row_of <- function(f) {
    values <- if (is.null(wanted$functions)) replace(numeric(count), f, 1) else as.numeric(wanted$functions)
    row <- table_row(release, tables, wanted$columns, shape, values)
    if (is.null(row)) return(NULL)
    sum <- (if (is.null(release$n)) 0 else release$n) * mean(values) + sum(row * release$sums)
    list(row = row, sum = sum)
  }
  first <- row_of(1)
  if (is.null(first)) return(NULL)
  seen <- conditions_seen(release, tables)
  table <- is.null(wanted$functions)
  fast <- table && (!length(seen) || count * release$size > 2e7)
  if (!fast && length(seen)) {
    at <- vapply(seen, `[[`, 0, "position")
    weights <- do.call(rbind, lapply(seen, `[[`, "row"))
    own <- matrix(0, length(at), release$size)
    own[cbind(seq_along(at), at)] <- 1
    beyond <- own - weights  # of the noises in what conditions say beyond the tables
    unit <- 1 / sqrt(pmax(as.vector(beyond^2 %*% release$variances), 1e-300))
    beyond <- beyond * unit
    surprise <- unit * (release$sums[at] - vapply(seen, `[[`, 0, "sum"))
    scaled <- sweep(beyond, 2, release$variances, `*`)
    spectrum <- eigen(scaled %*% t(beyond), symmetric = TRUE)
    kept <- spectrum$values > 1e-10  # sets of rows may say one thing twice
    basis <- sweep(spectrum$vectors[, kept, drop = FALSE], 2, sqrt(spectrum$values[kept]), `/`)
    update <- function(one) {
      gain <- -as.vector(basis %*% (t(basis) %*% (scaled %*% one$row)))
      list(row = one$row + as.vector(gain %*% beyond), sum = one$sum + sum(gain * surprise))
    }
  } else update <- identity
  every <- lapply(seq_len(count), function(f) update(row_of(f)))
  keys <- if (fast) rep(list(key_of(release, every[[1]]$row)), count)
          else lapply(every, function(one) key_of(release, one$row))
  if (table) {  # the uniforms of the first block that holds all columns, summed over its others
    held <- Find(function(block) precision(block, wanted$columns) > 0, tables)
    at <- margin_index(held, wanted$columns, shape)
  }
  uniforms <- vapply(seq_len(count), function(f) {
    uniform <- if (table) sum(held$uniforms[at == f])
               else sum(release$uniforms[abs(every[[f]]$row) > 1e-12])
    uniform - round(uniform)
  }, 0)
  list(sums = vapply(every, `[[`, 0, "sum"), uniforms = uniforms, keys = keys,
       variances = vapply(every, function(one) sum(one$row^2 * release$variances), 0),
       row = function(f) every[[f]]$row)
}

conditions_seen <- function(release, tables) {
  if (!is.null(release$kept$seen)) return(release$kept$seen)
  seen <- list()
  for (block in release$sources) {
    if (!block$kind %in% c("condition", "partition")) next
    of <- if (is.null(block$of)) block else block$of
    masks <- if (is.null(block$sets)) list(block$mask) else block$sets
    for (k in seq_along(masks)) {
      row <- table_row(release, tables, of$columns, of$shape, as.numeric(masks[[k]]))
      if (is.null(row)) next
      level <- if (is.null(release$n)) 0 else release$n
      seen[[length(seen) + 1]] <- list(position = block$start + k, row = row,
                                       sum = level * mean(masks[[k]]) + sum(row * release$sums))
    }
  }
  release$kept$seen <- seen
  seen
}

# Weights on the measured sums of the estimate of a function of cells, by orthogonal residuals.
table_row <- function(release, tables, columns, shape, values) {
  row <- numeric(release$size)
  function_array <- c_array(values, shape)
  for (chosen in subsets(length(columns), from = if (is.null(release$n)) 0 else 1)) {
    residual <- residual_of(function_array, chosen)
    if (max(abs(residual)) <= 1e-12 * max(abs(values))) next
    names <- columns[chosen]
    precisions <- vapply(tables, function(table) precision(table, names), 0)
    if (!any(precisions > 0)) return(NULL)
    for (i in which(precisions > 0)) {
      table <- tables[[i]]
      share <- precisions[i] / sum(precisions)
      if (table$kind == "residual") share <- share / length(table$sums)
      at <- if (length(names)) margin_index(table, names, shape[chosen]) else rep(1, length(table$sums))
      where <- table$start + seq_along(table$sums)
      row[where] <- row[where] + share * flat(residual)[at]
    }
  }
  row
}

subsets <- function(k, from) {
  found <- list()
  for (size in seq(from, k)) {
    if (size > k) break
    found <- c(found, if (size == 0) list(integer(0)) else utils::combn(k, size, simplify = FALSE))
  }
  found
}

# Means over the other columns, centred along the chosen ones.
residual_of <- function(array, chosen) {
  if (!length(chosen)) return(array(mean(array), 1))
  part <- if (length(chosen) < length(dim(array))) apply(array, chosen, mean) else array
  part <- array(part, if (length(chosen) == 1) length(part) else dim(part))
  for (axis in seq_along(chosen))
    part <- if (length(chosen) == 1) part - mean(part)
            else sweep(part, setdiff(seq_along(chosen), axis), apply(part, setdiff(seq_along(chosen), axis), mean))
  part
}

precision <- function(table, names) {
  if (!all(names %in% table$columns)) return(0)
  if (table$kind == "residual")
    return(if (setequal(names, table$columns)) length(table$sums)^2 / table$variance else 0)
  1 / (table$variance * prod(table$shape[!table$columns %in% names]))
}

# The law of a weighted sum of noises: weights (up to sign), scales and how many there are.
key_of <- function(release, row) {
  used <- which(abs(row) > 1e-12)
  grouped(data.frame(weight = round(abs(row[used]), 12), scale = release$scales[used]))
}

grouped <- function(parts) {
  id <- do.call(paste, lapply(parts, sprintf, fmt = "%.17g"))
  first <- !duplicated(id)
  found <- parts[first, , drop = FALSE]
  found$count <- as.vector(table(factor(id, levels = id[first])))
  rownames(found) <- NULL
  found
}

row_count <- function(release) {
  if (!is.null(release$n)) return(list(value = release$n, public = TRUE))
  if (is.null(release$kept$rows)) {
    found <- best(release, list(columns = character(0), functions = NULL, size = 1))
    release$kept$rows <- list(
      estimate = found$sums, value = max(1, round(found$sums)), public = FALSE,
      law = law_of_key(release, found$keys[[1]]), weights = found$row(1))
  }
  release$kept$rows
}

# ---- Laws of the noise -----------------------------------------------------------------------

# A sum of independent noises on the integers: discrete Laplace, or discrete Gaussian.
lattice <- function(gaussian, scale, terms)
  list(kind = "lattice", gaussian = gaussian, scale = scale, terms = terms)

law_of_key <- function(release, key) {
  if (nrow(key) == 1 && key$weight == 1) return(lattice(release$gaussian, key$scale, key$count))
  list(kind = "combination", parts = lapply(seq_len(nrow(key)), function(i)
    list(weight = key$weight[i], law = lattice(release$gaussian, key$scale[i], key$count[i]))))
}

law_variance <- function(law) {
  if (law$kind == "combination")
    return(sum(vapply(law$parts, function(part) part$weight^2 * law_variance(part$law), 0)))
  if (law$gaussian) {
    if (law$scale >= 2) return(law$terms * law$scale^2)
    z <- seq_len(80)
    weight <- exp(-z^2 / (2 * law$scale^2))
    return(law$terms * 2 * sum(z^2 * weight) / (1 + 2 * sum(weight)))
  }
  law$terms * 2 * exp(-1 / law$scale) / expm1(-1 / law$scale)^2
}

# Logarithm of E exp(i t Z), and upper bound of log E exp(u Z).
log_characteristic <- function(law, t) {
  if (!law$gaussian)
    return(-law$terms * log1p(4 * exp(-1 / law$scale) * sin(t / 2)^2 / expm1(-1 / law$scale)^2))
  t <- (t + pi) %% (2 * pi) - pi
  if (law$scale < 1) {
    z <- seq_len(60)
    weight <- exp(-z^2 / (2 * law$scale^2))
    total <- 1 + 2 * sum(weight)
    waves <- colSums(weight * cos(outer(z, t)))
    return(law$terms * log((1 + 2 * waves) / total))
  }
  k <- 2 * pi * c(1:3, -(1:3))
  others <- rowSums(exp(-0.5 * law$scale^2 * (rep(k^2, each = length(t)) - 2 * outer(t, k))))
  at_zero <- sum(exp(-0.5 * law$scale^2 * k^2))
  law$terms * (log1p(others) - log1p(at_zero) - 0.5 * law$scale^2 * t^2)
}

log_mgf <- function(law, u) {
  if (law$gaussian) return(0.5 * law$terms * (law$scale * u)^2)
  rate <- 1 / law$scale
  law$terms * (2 * log(-expm1(-rate)) - log1p(-exp(u - rate)) - log1p(-exp(-u - rate)))
}

# Half-width outside which a combination has a probability of about 1e-12 (Chernoff).
window_of <- function(parts) {
  parts <- Filter(function(part) part$weight != 0, parts)
  curvature <- sum(vapply(parts, function(part) (part$weight * part$law$scale)^2 * part$law$terms, 0))
  steepest <- vapply(parts, function(part)
    if (part$law$gaussian) Inf else 1 / (part$law$scale * abs(part$weight)), 0)
  theta <- min(4 * sqrt(2 * 28 / curvature), steepest) * seq(0.02, 0.98, length.out = 49)
  total <- Reduce(`+`, lapply(parts, function(part) log_mgf(part$law, abs(part$weight) * theta)))
  min((total + 28) / theta)
}

# P(Z >= t) for whole t >= 1 of a noise on the integers.
upper_tail <- function(law, t) {
  if (!law$gaussian) {
    a <- exp(-1 / law$scale)
    if (law$terms == 1) return(exp(-t / law$scale) / (1 + a))
    k <- seq_len(law$terms) - 1
    weight <- stats::dnbinom(k, law$terms, 1 / (1 + a))
    found <- 0
    for (i in which(weight > 1e-18))
      found <- found + weight[i] * stats::pnbinom(t + k[i] - 1, law$terms - k[i], -expm1(-1 / law$scale), lower.tail = FALSE)
    return(found)
  }
  if (law$scale >= 2) scale <- law$scale * sqrt(law$terms)
  else if (law$terms == 1) scale <- law$scale
  else {
    mass <- small_sum(law)
    upper <- c(rev(cumsum(rev(mass))), 0)
    return(upper[pmin(t, length(upper) - 1) + 1])
  }
  if (scale > 256) {
    y <- pmin((t - 0.5) / scale, 40)
    h <- 1 / scale^2
    series <- y * h / 24 - 7 * (y^3 - 3 * y) * h^2 / 5760
    return(stats::pnorm(-y) - stats::dnorm(y) * series)
  }
  z <- 0:ceiling(39 * scale + 1)
  weight <- exp(-0.5 * (z / scale)^2)
  upper <- c(rev(cumsum(rev(weight))), 0) / (2 * sum(weight) - 1)
  upper[pmin(t, length(upper) - 1) + 1]
}

# P(Z = z), z = 0, 1, .., of a sum of few discrete Gaussians of a small scale.
small_sum <- function(law) {
  z <- 0:ceiling(39 * law$scale + 1)
  weight <- exp(-0.5 * (z / law$scale)^2)
  one <- c(rev(weight[-1]), weight) / (2 * sum(weight) - 1)
  found <- 1
  for (i in seq_len(law$terms)) {
    grown <- numeric(length(found) + length(one) - 1)
    for (j in seq_along(one)) {
      at <- j - 1 + seq_along(found)
      grown[at] <- grown[at] + one[j] * found
    }
    spare <- max(0, (length(grown) - 1) / 2 - ceiling(14 * law$scale * sqrt(i)) - 1)
    found <- grown[(1 + spare):(length(grown) - spare)]
  }
  found[((length(found) + 1) / 2):length(found)]
}

# Functions of one law: the distribution function of Z + U, the reach and the quantile.
prepared <- function(law) {
  if (law$kind == "combination") return(prepared_combination(law))
  spread <- sqrt(law_variance(law))
  at_least <- function(t) ifelse(t >= 1, upper_tail(law, pmax(t, 1)), NA)
  quantile <- function(beta) {
    high <- 1
    while (2 * upper_tail(law, high + 1) > beta) high <- 2 * high
    low <- -1
    while (high - low > 1) {
      middle <- (low + high) %/% 2
      if (middle < 0 || 2 * upper_tail(law, middle + 1) > beta) low <- middle else high <- middle
    }
    high
  }
  zero_up <- (1 + (1 - 2 * upper_tail(law, 1))) / 2  # P(Z >= 0)
  whole <- function(t) ifelse(t >= 1, at_least(t), ifelse(t == 0, zero_up, 1))
  list(quantile = quantile, reach = quantile(1e-14) + 1, variance = spread^2, smoothed = function(t) {
    size <- abs(t) + 0.5
    nearest <- floor(size)
    below <- upper_tail(law, nearest + 1)
    above <- ifelse(nearest >= 1, upper_tail(law, pmax(nearest, 1)), 1 - below)
    outside <- above + (size - nearest) * (below - above)
    ifelse(t < 0, outside, 1 - outside)
  })
}

prepared_combination <- function(law) {
  window <- window_of(law$parts)
  table_of <- function(uniform) {
    points <- if (uniform) 2^18 else 2^17
    half <- 1.02 * (window + 0.5 * uniform)
    step <- 2 * half / points
    frequency <- pi / half * (0:(points / 2))
    logs <- numeric(length(frequency))
    for (part in law$parts) {
      above <- which(logs > -60)
      logs[above] <- logs[above] + log_characteristic(part$law, part$weight * frequency[above])
    }
    phi <- exp(logs - 0.5 * (2 * step * frequency)^2)
    if (uniform) phi <- phi * ifelse(frequency == 0, 1, sin(frequency / 2) / (frequency / 2))
    whole <- c(phi, rev(phi[2:(points / 2)]))
    mass <- Re(stats::fft(whole)) / points
    mass <- pmax(mass[c((points / 2 + 1):points, 1:(points / 2))], 0)
    list(at = step * ((0:(points - 1)) - points / 2), cdf = (cumsum(mass) - mass / 2) / sum(mass), step = step)
  }
  smooth <- table_of(TRUE)
  list(
    quantile = function(beta) {
      plain <- table_of(FALSE)
      8 * plain$step - plain$at[max(which(plain$cdf <= beta / 2))]
    },
    reach = ceiling(window), variance = law_variance(law),
    smoothed = function(t) stats::approx(smooth$at, smooth$cdf, t, yleft = 0, yright = 1)$y
  )
}

law_id <- function(key) paste(sprintf("%.17g", unlist(key)), collapse = " ")

prepared_for <- function(release, key) {
  id <- law_id(key)
  if (is.null(release$kept[[id]])) release$kept[[id]] <- prepared(law_of_key(release, key))
  release$kept[[id]]
}

# ---- Intervals -------------------------------------------------------------------------------

# P(X + Z + U <= t), X ~ Binomial(n, p).
noisy_binomial <- function(t, n, p, law) {
  sd <- sqrt(n * p * (1 - p))
  reach <- 12 + 8 * sd
  x <- seq(max(0, floor(n * p - reach)), min(n, ceiling(n * p + reach)))
  clear <- stats::pbinom(min(x) - 1, n, p)
  counted <- x[x >= t - law$reach & x <= t + law$reach]
  whole <- if (floor(t - law$reach) >= max(x)) 1 else stats::pbinom(ceiling(t - law$reach) - 1, n, p)
  if (!length(counted)) return(min(max(whole, clear), 1))
  whole + sum(stats::dbinom(counted, n, p) * law$smoothed(t - counted))
}

# The largest logit at which a decreasing tail is at least a level.
largest_logit <- function(tail, level, guess) {
  score <- function(y) {
    found <- tail(stats::plogis(y)) + 3e-12
    stats::qnorm(min(max(found, 1e-12), 1 - 1e-12)) - stats::qnorm(max(level, 1e-12))
  }
  if (score(-50) < 0) return(-Inf)
  if (score(50) >= 0) return(Inf)
  low <- max(guess - 0.5, -50); high <- min(guess + 0.5, 50)
  while (low > -50 && score(low) < 0) low <- max(low - 2 * (high - low), -50)
  while (high < 50 && score(high) >= 0) high <- min(high + 2 * (high - low), 50)
  stats::uniroot(score, c(low, high), tol = 1e-11, maxiter = 500)$root
}

# Ends from T + U at a public n.
ends_of_t <- function(t, n, law, alpha) {
  t <- min(max(t, 0), n)  # read as the nearest count that n rows can have
  guess <- stats::qlogis(min(max(t / n, 0.5 / n), 1 - 0.5 / n))
  upper <- largest_logit(function(p) noisy_binomial(t, n, p, law), alpha / 2, guess)
  mirrored <- largest_logit(function(p) noisy_binomial(n - t, n, p, law), alpha / 2, -guess)
  c(stats::plogis(-mirrored), stats::plogis(upper))
}

intervals_public <- function(release, found, n, alpha) {
  ends <- vapply(seq_along(found$sums), function(f) {
    law <- prepared_for(release, found$keys[[f]])
    ends_of_t(found$sums[f] + found$uniforms[f], n, law, alpha)
  }, numeric(2))
  list(low = ends[1, ], high = ends[2, ])
}

# With a measured number of rows: D + R, D = T - p N with the sampling variance of N rows and R normal
# with an eighth of its standard deviation, at most one row. Where there is hardly any noise, T + U at every number of
# rows in a confidence set.
intervals_measured <- function(release, found, rows, alpha) {
  joints <- lapply(seq_along(found$sums), function(f) joint_of(release, found$row(f), rows$weights))
  computable <- all(vapply(joints, function(joint) joint$relative_reach <= 100, NA))
  of_rows <- alpha / 25
  q <- prepared_for_law(rows$law)$quantile(of_rows)
  most <- max(1, floor(rows$estimate + q + 1e-9))
  least <- min(most, max(1, ceiling(rows$estimate - q - 1e-9)))
  ends <- vapply(seq_along(found$sums), function(f) {
    if (computable)
      return(ends_of_ratio(joints[[f]], rows$estimate, found$sums[f], found$uniforms[f], alpha / 2))
    law <- prepared_for(release, found$keys[[f]])
    t <- found$sums[f] + found$uniforms[f]
    c(ends_of_t(t, most, law, alpha - of_rows)[1], ends_of_t(t, least, law, alpha - of_rows)[2])
  }, numeric(2))
  list(low = ends[1, ], high = ends[2, ])
}

prepared_for_law <- function(law) prepared(law)

# Joint law of the noise on a sum (weights a) and on the number of rows (weights b).
joint_of <- function(release, row, count) {
  used <- which(abs(row) > 1e-12 | abs(count) > 1e-12)
  sign <- ifelse(row[used] < -1e-12, -1, 1)
  parts <- grouped(data.frame(a = round(sign * row[used], 12), b = round(sign * count[used], 12),
                              scale = release$scales[used]))
  id <- paste("joint", law_id(parts))
  if (is.null(release$kept[[id]])) {
    laws <- lapply(seq_len(nrow(parts)), function(i) lattice(release$gaussian, parts$scale[i], parts$count[i]))
    variances <- vapply(laws, law_variance, 0)
    variance <- function(p) sum((parts$a - p * parts$b)^2 * variances)
    relative <- vapply(seq(0, 1, length.out = 33), function(p) {
      weights <- parts$a - p * parts$b
      if (all(weights == 0)) return(0)
      if (variance(p) <= 0) return(Inf)
      at_p <- lapply(seq_along(laws), function(i) list(weight = weights[i], law = laws[[i]]))
      window_of(at_p) / sqrt(variance(p))
    }, 0)
    release$kept[[id]] <- list(
      relative_reach = 1.25 * max(relative),
      variance = variance,
      log_characteristic = function(s, p) {
        total <- numeric(length(s))
        for (i in seq_along(laws))
          total <- total + log_characteristic(laws[[i]], (parts$a[i] - p * parts$b[i]) * s)
        total
      })
  }
  release$kept[[id]]
}

# P(D + R <= observed) at a share.
cdf_of_ratio <- function(joint, count, t, u, p) {
  n <- max(count, 1)
  variance <- n * p * (1 - p)
  unit <- min(sqrt(max(joint$variance(p) + variance, 1e-18)) / 8, 1)
  d <- (t - p * count) / unit + stats::qnorm(u + 0.5)
  third <- 28 / 3
  reach <- 8 * joint$relative_reach * max(sqrt(joint$variance(p)) / 8 / unit, 1) + sqrt(2 * 28) + (third + sqrt(third^2 + 6 * third * variance)) / unit
  if (abs(d) >= reach) return(if (d < 0) 0 else 1)
  step <- 2 * pi / (reach + abs(d))
  s <- (seq_len(ceiling(7.6 / step)) - 0.5) * step
  rows <- s / unit
  half <- sin(rows / 2)
  size <- 0.5 * n * log1p(-4 * p * (1 - p) * half^2)
  size <- exp(size + joint$log_characteristic(rows, p) - s^2 / 2)
  less <- min(p, 1 - p)
  angle <- n * (atan2(less * sin(rows), 1 - 2 * less * half^2) - rows * less)
  if (p > 0.5) angle <- -angle
  found <- 0.5 - sum(size * sin(angle - s * d) * 2 / s) * step / (2 * pi)
  min(max(found, 0), 1)
}

# Ends of the shares of which neither tail is below a level.
ends_of_ratio <- function(joint, count, t, u, level) {
  if (count <= 0) return(c(0, 1))
  t <- min(max(t, 0), count)  # read as the nearest count that N rows can have
  upper <- function(tail, start) {
    score <- function(q)
      stats::qnorm(min(max(tail(q), 1e-12), 1 - 1e-12)) - stats::qnorm(level)
    if (score(1) >= 0) return(1)
    if (score(start) <= 0) return(start)
    stats::uniroot(score, c(start, 1), tol = 1e-14, maxiter = 500)$root
  }
  high <- upper(function(q) cdf_of_ratio(joint, count, t, u, q), t / count)
  low <- 1 - upper(function(q) 1 - cdf_of_ratio(joint, count, t, u, 1 - q), 1 - t / count)
  c(min(low, high), max(low, high))
}
