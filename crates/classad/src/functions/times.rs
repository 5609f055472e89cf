//! Time.

use super::Named;
use crate::eval::{Evaluator, Result, Val};
use crate::number::to_i64;
use crate::time::{Civil, format, parse_absolute, parse_relative};
use crate::value::{AbsTime, Value};
use crate::{Ad, Expr};

pub(super) const ALL: &[Named] = &[
    ("time", |e, args| now(args, Val::Int(e.context.now))),
    ("currentTime", |e, args| now(args, local(e, e.context.now))),
    ("timezoneOffset", |e, args| now(args, Val::RelTime(e.context.utc_offset.into()))),
    ("dayTime", |e, args| now(args, Val::RelTime(local_secs(e, e.context.now).rem_euclid(86_400) as f64))),
    ("absTime", absolute),
    ("relTime", relative),
    ("interval", interval),
    ("splitTime", split_time),
    ("formatTime", format_time),
    ("getYear", |e, args| field(e, args, |t| Some(t.year), |_| None)),
    ("getMonth", |e, args| field(e, args, |t| Some(t.month), |_| None)),
    ("getDayOfYear", |e, args| field(e, args, |t| Some(t.day_of_year()), |_| None)),
    ("getDayOfMonth", |e, args| field(e, args, |t| Some(t.day), |_| None)),
    ("getDayOfWeek", |e, args| field(e, args, |t| Some(t.day_of_week()), |_| None)),
    ("getDays", |e, args| field(e, args, |_| None, |secs| Some(secs / 86_400))),
    ("getHours", |e, args| field(e, args, |t| Some(t.hour), |secs| Some(secs % 86_400 / 3600))),
    ("getMinutes", |e, args| field(e, args, |t| Some(t.minute), |secs| Some(secs % 3600 / 60))),
    ("getSeconds", |e, args| field(e, args, |t| Some(t.second), |secs| Some(secs % 60))),
];

fn now(args: &[Expr], value: Val) -> Result<Val> {
    Ok(if args.is_empty() { value } else { Val::Error })
}

/// An instant, in local time.
fn local(e: &Evaluator<'_>, secs: i64) -> Val {
    Val::AbsTime(AbsTime { secs, offset: e.context.utc_offset })
}

/// Seconds since 1970 of the local clock.
fn local_secs(e: &Evaluator<'_>, secs: i64) -> i64 {
    secs.saturating_add(e.context.utc_offset.into())
}

/// The date at this time in seconds, limited to the range of date arithmetic.
fn civil(secs: i64) -> Civil {
    Civil::at(secs.clamp(-(1 << 55), 1 << 55))
}

/// Makes an instant of a number, a span since 1970 or a text, and perhaps an offset from UTC in seconds.
fn absolute(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let (arg, offset) = match args {
        [] => return Ok(local(e, e.context.now)),
        [arg] => (e.eval(arg)?, None),
        [arg, offset] => (e.eval(arg)?, Some(e.eval(offset)?)),
        _ => return Ok(Val::Error),
    };
    let offset = match offset {
        None => e.context.utc_offset,
        // The lower half, as HTCondor cuts it.
        Some(Val::RelTime(t)) => to_i64(t) as i32,
        Some(number) => match number.secs32() {
            Some(offset) => offset,
            None => return Ok(Val::Error),
        },
    };
    Ok(match arg {
        Val::Undefined => Val::Undefined,
        Val::AbsTime(t) => Val::AbsTime(t),
        Val::RelTime(t) => Val::AbsTime(AbsTime { secs: to_i64(t), offset }),
        Val::Str(text) => parse_absolute(&text, e.context.utc_offset).map_or(Val::Error, Val::AbsTime),
        number => match number.secs32() {
            Some(secs) => Val::AbsTime(AbsTime { secs: secs.into(), offset }),
            None => Val::Error,
        },
    })
}

/// Makes a span of time.
fn relative(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    Ok(match e.eval(arg)? {
        Val::Undefined => Val::Undefined,
        Val::Real(r) => Val::RelTime(r),
        Val::RelTime(t) => Val::RelTime(t),
        Val::AbsTime(t) => Val::RelTime(t.secs as f64),
        Val::Str(text) => parse_relative(&text).map_or(Val::Error, Val::RelTime),
        number => number.int32().map_or(Val::Error, |secs| Val::RelTime(secs.into())),
    })
}

/// Seconds as `days+hh:mm:ss`.
fn interval(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let Some(secs) = e.eval(arg)?.to_int() else { return Ok(Val::Error) };
    // The lower half, as HTCondor cuts it. The sign is at the first part that is not zero.
    let secs = secs as i32;
    let (days, hours, minutes, left) = (secs / 86_400, secs % 86_400 / 3600, secs % 3600 / 60, secs % 60);
    let text = if days != 0 {
        format!("{days}+{:02}:{:02}:{:02}", hours.abs(), minutes.abs(), left.abs())
    } else if hours != 0 {
        format!("{hours}:{:02}:{:02}", minutes.abs(), left.abs())
    } else if minutes != 0 {
        format!("{minutes}:{:02}", left.abs())
    } else {
        left.to_string()
    };
    e.string(text.into_bytes())
}

fn field(
    e: &mut Evaluator<'_>,
    args: &[Expr],
    of_instant: fn(&Civil) -> Option<i64>,
    of_span: fn(i64) -> Option<i64>,
) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let field = match e.eval(arg)? {
        Val::AbsTime(t) => of_instant(&civil(local_secs(e, t.secs))),
        Val::RelTime(t) => of_span(to_i64(t)),
        _ => None,
    };
    Ok(field.map_or(Val::Error, Val::Int))
}

/// The instant that a number or an instant is, if there is a date for it. Of reals HTCondor keeps 32 bits.
fn instant(e: &Evaluator<'_>, value: &Val) -> Option<AbsTime> {
    let time = match value {
        Val::AbsTime(t) => *t,
        Val::Int(secs) => AbsTime { secs: *secs, offset: e.context.utc_offset },
        number => AbsTime { secs: number.secs32()?.into(), offset: e.context.utc_offset },
    };
    (time.secs.unsigned_abs() < 1 << 55).then_some(time)
}

fn split_time(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let value = e.eval(arg)?;
    if let Val::RelTime(t) = value {
        return Ok(e.ad(split_span(t)));
    }
    let Some(time) = instant(e, &value) else {
        return Ok(if matches!(value, Val::Undefined) { value } else { Val::Error });
    };
    let t = civil(time.secs.saturating_add(time.offset.into()));
    let ad: Ad = [
        ("Type", Value::from("AbsoluteTime")),
        ("Year", t.year.into()),
        ("Month", t.month.into()),
        ("Day", t.day.into()),
        ("Hours", t.hour.into()),
        ("Minutes", t.minute.into()),
        ("Seconds", t.second.into()),
        ("Offset", i64::from(time.offset).into()),
    ]
    .into_iter()
    .collect();
    Ok(e.ad(ad))
}

/// The parts of a span; the first that is not zero has its sign.
fn split_span(secs: f64) -> Ad {
    let size = secs.abs();
    let whole = to_i64(size);
    let mut parts = [whole / 86_400, whole % 86_400 / 3600, whole % 3600 / 60];
    let mut seconds = (whole % 60) as f64 + size.fract();
    if secs < 0.0 {
        match parts.iter_mut().find(|part| **part > 0) {
            Some(part) => *part = -*part,
            None => seconds = -seconds,
        }
    }
    [
        ("Type", Value::from("RelativeTime")),
        ("Days", parts[0].into()),
        ("Hours", parts[1].into()),
        ("Minutes", parts[2].into()),
        ("Seconds", seconds.into()),
    ]
    .into_iter()
    .collect()
}

/// An instant by `strftime`; it may also be an ad with the parts that `splitTime()` gives.
fn format_time(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let (time, template) = match args {
        [] => (Some(Val::Int(e.context.now)), None),
        [time] => (Some(e.eval(time)?), None),
        [time, template] => (Some(e.eval(time)?), Some(template)),
        _ => (None, None),
    };
    let Some(time) = time else { return Ok(Val::Error) };
    let t = match &time {
        Val::Ad(ad) => {
            let mut part = |name: &str, otherwise: i64| -> Result<i64> {
                Ok(e.field(*ad, name)?.int32().map_or(otherwise, i64::from))
            };
            Civil {
                year: part("Year", 1900)?,
                month: part("Month", 1)?,
                day: part("Day", 0)?,
                hour: part("Hours", 0)?,
                minute: part("Minutes", 0)?,
                second: part("Seconds", 0)?,
            }
        }
        value => match instant(e, value) {
            Some(t) => civil(t.secs.saturating_add(t.offset.into())),
            None => return Ok(Val::Error),
        },
    };
    let text = match template.map(|template| e.eval(template)).transpose()? {
        None => format(&t, b"%c", e.context.utc_offset),
        Some(Val::Str(template)) => {
            e.spend(template.len())?;
            format(&t, &template, e.context.utc_offset)
        }
        Some(_) => return Ok(Val::Error),
    };
    e.string(text)
}
